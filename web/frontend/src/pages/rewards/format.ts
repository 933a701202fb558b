/** How figures are written: the same number of digits everywhere, a dash for what is not there. */

const NONE = "–";

export function figure(value: number | null | undefined, digits = 3): string {
  return value === null || value === undefined ? NONE : value.toFixed(digits).replace(/^-/, "\u2212");
}

export function signed(value: number, digits = 3): string {
  return `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(digits)}`;
}

export function interval(low: number | null | undefined, high: number | null | undefined, digits = 3): string {
  if (low === null || low === undefined || high === null || high === undefined) return NONE;
  return `${figure(low, digits)} to ${figure(high, digits)}`;
}

export function count(value: number): string {
  return value.toLocaleString("en-GB");
}

export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function when(at: string): string {
  return new Date(at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** The first digits of a content hash tell versions apart. */
export function short(version: string): string {
  return version.slice(0, 8);
}
