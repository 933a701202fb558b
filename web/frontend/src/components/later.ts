import { useEffect, useSyncExternalStore } from "react";

/** What is loaded when it is first needed, once, while what needs it is shown without. */
export interface Later<T> {
  value: T | null;
  load: () => Promise<void>;
  subscribe: (changed: () => void) => () => void;
}

/** What could not be loaded is tried again by the next that needs it. */
export function later<T>(load: () => Promise<T>): Later<T> {
  const listeners = new Set<() => void>();
  let loading: Promise<void> | null = null;
  const self: Later<T> = {
    value: null,
    load: () =>
      (loading ??= load().then(
        (value) => {
          self.value = value;
          for (const changed of listeners) changed();
        },
        () => {
          loading = null;
        },
      )),
    subscribe: (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
  };
  return self;
}

/** It, or null while it is not loaded or not needed. Loaded once something that needs it has been shown. */
export function useLater<T>(what: Later<T>, needed = true): T | null {
  const value = useSyncExternalStore(what.subscribe, () => what.value);
  useEffect(() => {
    if (needed && value === null) void what.load();
  }, [what, needed, value]);
  return needed ? value : null;
}
