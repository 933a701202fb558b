import { NONE } from "./none";

/** A number's text with a true minus before it. */
export function minus(text: string): string {
  return text.replace(/^-/, "\u2212");
}

/** A measured number, with as many digits wherever it stands. */
export function figure(value: number | null | undefined, digits = 3): string {
  return value == null ? NONE : minus(value.toFixed(digits));
}

/** A difference: its sign always said. */
export function signed(value: number, digits = 3): string {
  return `${value < 0 ? "\u2212" : "+"}${Math.abs(value).toFixed(digits)}`;
}

/** An interval by its ends. */
export function interval(low: number | null | undefined, high: number | null | undefined, digits = 3): string {
  return low == null || high == null ? NONE : `${figure(low, digits)} to ${figure(high, digits)}`;
}

/** The interval of a figure that has one; fewer than ten prompts leave it undetermined. */
export function determined(low: number | null, high: number | null, digits = 3): string {
  return low === null || high === null ? "undetermined: few or all alike" : interval(low, high, digits);
}
