/** How figures are written: the same everywhere, a dash for what is not there. */
const NONE = "–";

export function count(value: number | null | undefined): string {
  return value == null ? NONE : value.toLocaleString("en-GB");
}

export function counted(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function percent(value: number | null | undefined, digits = 1): string {
  return value == null ? NONE : `${(100 * value).toFixed(digits)} %`;
}

export function figure(value: number | null | undefined, digits = 3): string {
  return value == null ? NONE : value.toFixed(digits);
}

/** An amount in the currency of the judges' prices. */
export function cost(value: number | null | undefined): string {
  if (value == null) return "unknown, no prices";
  if (value === 0) return "0";
  return value < 0.01 ? value.toPrecision(2) : value.toFixed(2);
}

/** Local date and time to the minute. */
export function moment(seconds: number): string {
  return new Date(seconds * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

/** A name that may be a whole sentence, for a chart. */
export function clipped(name: string, most: number): string {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

/** A rule's name as words. */
export function words(rule: string): string {
  return rule.replaceAll("_", " ");
}
