import { useCallback, useEffect, useRef } from "react";

/** Seconds that the page was in view since `item` came, on top of `before`. Reading it draws nothing. */
export function useClock(item: string | undefined, before: number): () => number {
  const state = useRef({ kept: before, since: null as number | null });
  useEffect(() => {
    state.current = { kept: before, since: document.hidden ? null : Date.now() };
    const turned = () => {
      const now = state.current;
      if (document.hidden && now.since !== null) state.current = { kept: now.kept + (Date.now() - now.since) / 1000, since: null };
      else if (!document.hidden && now.since === null) state.current = { kept: now.kept, since: Date.now() };
    };
    document.addEventListener("visibilitychange", turned);
    return () => document.removeEventListener("visibilitychange", turned);
    // eslint-disable-next-line react-hooks/exhaustive-deps -- `before` is the item's: read once, when the item comes
  }, [item]);
  return useCallback(() => {
    const { kept: elapsed, since } = state.current;
    return elapsed + (since === null ? 0 : (Date.now() - since) / 1000);
  }, []);
}
