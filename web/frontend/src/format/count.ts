import { NONE } from "./none";

/** A whole number, its thousands apart. */
export function count(value: number | null | undefined): string {
  return value == null ? NONE : value.toLocaleString("en-GB");
}

/** "1 row", "2 rows" */
export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}
