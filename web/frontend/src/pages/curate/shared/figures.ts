import { fixed } from "../../../format/figure";
import { numberText, t } from "../../../i18n";

/** An amount in the currency of the judges' prices. */
export function cost(value: number | null | undefined): string {
  if (value == null) return t("unknown, no prices");
  if (value === 0) return "0";
  return value < 0.01 ? numberText(value, { maximumSignificantDigits: 2 }) : fixed(value, 2);
}

/** A rule's name as words. */
export function words(rule: string): string {
  return rule.replaceAll("_", " ");
}
