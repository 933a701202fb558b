import type { Schemas } from "../../../api/client";
import { textKey } from "../../../i18n";
import type { PrincipleDraft } from "../drafts";
import type { Fulfilment, Place } from "../words";

/** Which answer is meant: one response and principle. */
export interface Spot {
  principle: string;
  place: Place;
}

/** The keys of the panel, and the words on its buttons. */
export const ANSWERS: { answer: Fulfilment; label: string; key: number }[] = [
  { answer: "yes", label: textKey("yes"), key: 1 },
  { answer: "partially", label: textKey("partly"), key: 2 },
  { answer: "no", label: textKey("no"), key: 3 },
];

export const LETTERS: Record<Place, "A" | "B"> = { first: "A", second: "B" };

export function draftAt(principles: PrincipleDraft[], { principle, place: side }: Spot): PrincipleDraft {
  const draft = principles.find((one) => one.principle === principle && one.place === side);
  return draft ?? { principle, place: side, answer: null, evidence: null };
}

/** The drafts with this one changed; one that says nothing any more is left out. */
export function withChange(principles: PrincipleDraft[], spot: Spot, change: Partial<PrincipleDraft>): PrincipleDraft[] {
  const next = { ...draftAt(principles, spot), ...change };
  const unchanged = principles.filter((one) => one.principle !== spot.principle || one.place !== spot.place);
  return next.answer === null && next.evidence === null ? unchanged : [...unchanged, next];
}

/** What is sent: evidence without an answer stays behind. */
export function answered(principles: PrincipleDraft[]): Schemas["PrincipleBody"][] {
  return principles.flatMap(({ answer, ...fields }) => (answer === null ? [] : [{ ...fields, answer }]));
}
