import type { operations } from "../../../api/schema";
import { t, textKey } from "../../../i18n";

export type Query = NonNullable<operations["list_comparisons"]["parameters"]["query"]>;

/** Filters with several values, by their name in the address and in the API. */
export const MANY = ["pool", "source", "category", "language", "label"] as const;
export const ONE = ["conflict", "scored_by", "reward_low", "reward_high", "text", "id", "order"] as const;

export const POOLS = ["unverified", "gold", "silver", "recycled", "pending", "discarded"];
export const LABELS = [
  { value: "A", label: "A" },
  { value: "B", label: "B" },
  { value: "tie", label: textKey("tie") },
  { value: "none", label: textKey("no label") },
];
export const CONFLICTS = [
  { value: "any", label: textKey("any two") },
  { value: "against_source", label: textKey("an annotator with the source") },
  { value: "annotators", label: textKey("annotators with one another") },
  { value: "sources", label: textKey("sources with one another") },
];

/** Choices in the person's language. */
export function translated(choices: { value: string; label: string }[]): { value: string; label: string }[] {
  return choices.map(({ value, label }) => ({ value, label: t(label) }));
}

/** What the address asks for, as the API takes it. */
export function queryOf(address: URLSearchParams): Query {
  const query: Record<string, string | string[]> = {};
  for (const name of MANY) if (address.has(name)) query[name] = address.getAll(name);
  for (const name of ONE) {
    const value = address.get(name);
    if (value) query[name] = value;
  }
  return query as Query;
}

/** The same address for the same question: what pages in memory are known by. */
export function keyOf(address: URLSearchParams): string {
  const parameters = new URLSearchParams();
  for (const name of MANY) for (const value of address.getAll(name).toSorted()) parameters.append(name, value);
  for (const name of ONE) if (address.get(name)) parameters.set(name, address.get(name)!);
  return parameters.toString();
}

/** How many filters are set; the order is none. */
export function filtersSet(address: URLSearchParams): number {
  const many = MANY.filter((name) => address.has(name)).length;
  return many + ["conflict", "scored_by", "text", "id"].filter((name) => address.get(name)).length;
}

const OURS = /^[cprj]-[0-9a-f]{32}$/;

/** Whether somebody pasted an id of ours rather than a text. */
export function isId(text: string): boolean {
  return OURS.test(text.trim());
}
