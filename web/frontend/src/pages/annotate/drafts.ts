import type { Fulfilment, Place } from "./words";

/** What somebody has begun on an item: kept in the browser, one entry an item, until the vote is acknowledged. */
export interface Draft {
  strength: number | null;
  rationale: string;
  /** Answers on principles, and evidence that waits for its answer. */
  principles: PrincipleDraft[];
  /** What is begun of an answer to what is no pair, in its question's own form. */
  response: unknown;
  /** What is begun of a note to the curators. */
  note: string;
  /** Spent on the item before the page was last loaded. */
  seconds: number;
}

/** One response and principle. `evidence`: words of the response's source. */
export interface PrincipleDraft {
  place: Place;
  principle: string;
  answer: Fulfilment | null;
  evidence: string | null;
}

export const EMPTY: Draft = { strength: null, rationale: "", principles: [], response: null, note: "", seconds: 0 };

const PREFIX = "assay.draft:";
const OLDEST_MS = 30 * 86_400_000;

/** Names an item for one person. */
export function draftName(person: string, queue: string, item: { ticket: string; seal: string }): string {
  return [person, queue, item.ticket, item.seal].join(":");
}

/** `item`: its `draftName`. */
export function loadDraft(item: string): Draft {
  try {
    const stored = localStorage.getItem(PREFIX + item);
    return stored === null ? EMPTY : { ...EMPTY, ...(JSON.parse(stored) as Partial<Draft>) };
  } catch {
    return EMPTY;
  }
}

export function saveDraft(item: string, draft: Draft): void {
  try {
    localStorage.setItem(PREFIX + item, JSON.stringify({ ...draft, at: Date.now() }));
  } catch {
    // A browser that keeps nothing: the draft lives as long as the page.
  }
}

export function dropDraft(item: string): void {
  try {
    localStorage.removeItem(PREFIX + item);
  } catch {
    // As above.
  }
}

/** Drop drafts of items that were never voted on, a month after their last change. */
export function dropOldDrafts(now = Date.now()): void {
  try {
    for (const name of Object.keys(localStorage)) {
      if (!name.startsWith(PREFIX)) continue;
      const { at } = JSON.parse(localStorage.getItem(name) ?? "{}") as { at?: number };
      if (at === undefined || now - at > OLDEST_MS) localStorage.removeItem(name);
    }
  } catch {
    // As above.
  }
}
