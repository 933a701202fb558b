import type { RefObject } from "react";

import type { Draft } from "../drafts";
import type { Action } from "../keys/actions";
import type { Item } from "../words";

/** What a question on one response, or on a list of them, gets of its session. */
export interface TaskProps {
  item: Item;
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  /** Casts the answer, in the form that the question type takes. */
  onAnswer: (response: Record<string, unknown>) => void;
  /** Does what a key of the session does, for somebody who clicks. */
  press: (action: Action) => void;
  /** While an answer waits for the server, and while it is shown once more after it is stored. */
  disabled: boolean;
  keys: boolean;
  plain: boolean;
  writing: boolean;
  box: RefObject<HTMLTextAreaElement | null>;
}

/** What was begun of an answer: kept with the draft, so that a reload loses nothing. */
export function begun<T>(draft: Draft, none: T): T {
  return (draft.response as T | null) ?? none;
}

/** Characters of a text as the server counts them: a code point each. */
export function codePoints(text: string): number {
  return [...text].length;
}

/** The words between two of the server's characters. */
export function wordsBetween(text: string, start: number, end: number): string {
  return [...text].slice(start, end).join("");
}
