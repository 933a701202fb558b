import { numberText, t } from "../i18n";
import { NONE } from "./none";

/** A number's text with a true minus before it. */
export function minus(text: string): string {
  return text.replace(/^-/, "\u2212");
}

/** Exactly so many digits behind the point, or the comma; no thousands apart. */
export function fixed(value: number, digits: number): string {
  return numberText(value, { minimumFractionDigits: digits, maximumFractionDigits: digits, useGrouping: false });
}

/** A measured number, with as many digits wherever it stands. */
export function figure(value: number | null | undefined, digits = 3): string {
  return value == null ? NONE : minus(fixed(value, digits));
}

/** A difference: its sign always said. */
export function signed(value: number, digits = 3): string {
  return `${value < 0 ? "\u2212" : "+"}${fixed(Math.abs(value), digits)}`;
}

/** An interval by its ends. */
export function interval(low: number | null | undefined, high: number | null | undefined, digits = 3): string {
  return low == null || high == null ? NONE : t("{{low}} to {{high}}", { low: figure(low, digits), high: figure(high, digits) });
}

/** The interval of a figure that has one; fewer than ten prompts leave it undetermined. */
export function determined(low: number | null, high: number | null, digits = 3): string {
  return low === null || high === null ? t("undetermined: few or all alike") : interval(low, high, digits);
}
