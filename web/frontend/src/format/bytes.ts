import { numberText } from "../i18n";

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

/** A size in three digits: "4.2 MB". */
export function bytes(size: number): string {
  let unit = 0;
  let value = size;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${numberText(Number(value.toPrecision(3)))} ${UNITS[unit]}`;
}
