import { useEffect, useState } from "react";

import type { Schemas } from "../../../api/client";

export type Turn = Schemas["Turn"];
export type ModelChoice = Schemas["ModelChoice"];
export type Question = Schemas["PlaygroundQuestion"];
export type Reply = Schemas["PlaygroundReply"];

/** What stands in the playground. `own`: principles that were written here; `principles`: those switched on. */
export interface Draft {
  prompt: Turn[];
  responses: string[];
  models: ModelChoice[];
  principles: string[];
  own: string[];
  label: string;
}

/** The last answer, and to what. */
export interface Answer {
  question: Question;
  reply: Reply;
  at: string;
}

const DRAFT = "assay.rewards.playground.draft";
export const ANSWER = "assay.rewards.playground.answer";

const NOTHING: Draft = {
  prompt: [{ role: "user", content: "" }],
  responses: ["", ""],
  models: [],
  principles: [],
  own: [],
  label: "",
};

function read<T>(key: string): T | null {
  try {
    const stored = window.localStorage.getItem(key);
    return stored === null ? null : (JSON.parse(stored) as T);
  } catch {
    return null;
  }
}

/** Keeps a value in the browser; a full or closed storage costs a reload, not the page. */
function keep(key: string, value: unknown): void {
  try {
    window.localStorage.setItem(key, JSON.stringify(value));
  } catch {
    window.localStorage.removeItem(key);
  }
}

export function useKept<T>(key: string, start: T): [T, (value: T) => void] {
  const [value, setValue] = useState<T>(() => read<T>(key) ?? start);
  useEffect(() => keep(key, value), [key, value]);
  return [value, setValue];
}

export function useDraft(): [Draft, (change: Partial<Draft>) => void] {
  const [stored, setKept] = useKept<Partial<Draft>>(DRAFT, NOTHING);
  const draft = { ...NOTHING, ...stored };
  return [draft, (change) => setKept({ ...draft, ...change })];
}

/** The question as it would be sent; null while something is missing. Empty turns and responses are left out. */
export function questionOf(draft: Draft): Question | null {
  const prompt = draft.prompt.filter(({ content }) => content.trim() !== "");
  const responses = draft.responses.filter((text) => text.trim() !== "");
  if (prompt.length === 0 || responses.length === 0 || draft.models.length === 0) return null;
  return { prompt, responses, models: draft.models, principles: draft.principles, label: draft.label || null };
}

/** Opens a pair of the store in the playground, next to what was chosen there. The server refuses a role it does not know. */
export function prefill(turns: { role: string; content: string }[], responses: string[]): void {
  const prompt = turns.map((turn) => ({ role: turn.role as Turn["role"], content: turn.content }));
  keep(DRAFT, { ...NOTHING, ...read<Draft>(DRAFT), prompt, responses });
}
