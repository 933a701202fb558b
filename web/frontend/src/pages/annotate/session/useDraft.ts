import { useEffect, useRef, useState } from "react";

import { dropDraft, dropOldDrafts, EMPTY, loadDraft, saveDraft, type Draft } from "../drafts";
import { useClock } from "./useClock";

export interface DraftState {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  /** Once the vote is acknowledged, or refused and kept elsewhere. */
  drop: () => void;
  /** Spent on the item in all. */
  seconds: () => number;
}

/**
 * What is begun on an item, `name`d for one person; saved at each change, and the time now and then. `before`: what it
 * begins with where nothing is kept.
 */
export function useDraft(name: string | undefined, before: Partial<Draft> = {}): DraftState {
  const load = () => {
    const kept = name === undefined ? EMPTY : loadDraft(name);
    return kept === EMPTY ? { ...EMPTY, ...before } : kept;
  };
  const [of, setOf] = useState(name);
  const [draft, setDraft] = useState<Draft>(load);
  if (of !== name) {
    // The next item: its own draft, before anything of it is drawn.
    setOf(name);
    setDraft(load());
  }
  useEffect(() => dropOldDrafts(), []);
  const seconds = useClock(name, draft.seconds);
  const latest = useRef(draft);
  const dropped = useRef<string | undefined>(undefined);
  useEffect(() => {
    latest.current = draft;
  }, [draft]);
  useEffect(() => {
    if (name === undefined) return;
    const save = () => {
      if (dropped.current !== name) saveDraft(name, { ...latest.current, seconds: seconds() });
    };
    const timer = setInterval(save, 5000);
    window.addEventListener("pagehide", save);
    return () => {
      clearInterval(timer);
      window.removeEventListener("pagehide", save);
    };
  }, [name, seconds]);
  return {
    draft,
    seconds,
    change: (part) => {
      const next = { ...draft, ...part };
      setDraft(next);
      if (name !== undefined) saveDraft(name, { ...next, seconds: seconds() });
    },
    drop: () => {
      dropped.current = name;
      if (name !== undefined) dropDraft(name);
    },
  };
}
