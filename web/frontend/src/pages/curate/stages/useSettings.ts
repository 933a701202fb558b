import { useEffect, useState } from "react";

import type { Settings } from "./useStages";

export type Change = (settings: Settings) => void;
export type Of<S extends Settings["stage"]> = Extract<Settings, { stage: S }>;

/** Settings of a form, told to it at the beginning and whenever one changes, unless `ready` says that one is missing. */
export function useSettings<S extends Settings["stage"]>(
  first: Of<S>,
  onChange: Change,
  ready: (settings: Of<S>) => boolean = () => true,
): [Of<S>, (changes: Partial<Of<S>>) => void] {
  const [settings, setSettings] = useState(first);
  const complete = ready(settings);
  useEffect(() => {
    if (complete) onChange(settings as Settings);
  }, [settings, complete, onChange]);
  return [settings, (changes) => setSettings((before) => ({ ...before, ...changes }))];
}
