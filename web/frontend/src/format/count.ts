import { numberText } from "../i18n";
import { NONE } from "./none";

/** A whole number, its thousands apart. */
export function count(value: number | null | undefined): string {
  return value == null ? NONE : numberText(value);
}

/** "1 row", "2 rows"; `plural` where it is not made with an s: "1 person", "2 people". */
export function counted(value: number, noun: string, plural = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : plural}`;
}
