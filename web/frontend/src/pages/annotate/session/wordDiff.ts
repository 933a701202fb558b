import { diffWordsWithSpace } from "diff";

export interface Piece {
  text: string;
  /** Only this response has it. */
  own: boolean;
}

const LONGEST_MS = 400;

/** Both texts in pieces, those that the other lacks marked; null where they are too long and different to tell soon. */
export function wordDiff(first: string, second: string): [Piece[], Piece[]] | null {
  const changes = diffWordsWithSpace(first, second, { timeout: LONGEST_MS });
  if (changes === undefined) return null;
  const pieces = (dropped: "added" | "removed", marked: "added" | "removed") =>
    changes.filter((change) => !change[dropped]).map((change) => ({ text: change.value, own: Boolean(change[marked]) }));
  return [pieces("added", "removed"), pieces("removed", "added")];
}
