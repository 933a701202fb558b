import { useEffect, useRef } from "react";

import type { Action } from "./actions";
import { useKeymap } from "./keymap";
import { learn } from "./layout";
import { isAlone, positionOf } from "./positions";

/** What a key does here; `false` from `run`: nothing, somebody else may take it. */
export type Binding = [Action, run: () => unknown];

/**
 * Single keys anywhere on the page, by their position, but not while somebody writes, with a modifier, or held down. Of
 * two parts of the page that take the same key the inner one gets it.
 */
export function useKeys(enabled: boolean, bindings: Binding[]): void {
  const keymap = useKeymap();
  const latest = useRef({ keymap, bindings });
  useEffect(() => {
    latest.current = { keymap, bindings };
  });
  useEffect(() => {
    if (!enabled) return;
    const pressed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.repeat) return;
      const help = event.key === "?" && !event.ctrlKey && !event.metaKey && !event.altKey; // wherever the layout has it
      if (isAlone(event)) learn(event);
      else if (!help) return;
      if (isWriting(event.target)) return;
      const position = positionOf(event);
      if ((position === "Enter" || position === "Space") && isControl(event.target)) return; // it presses that control
      const { keymap, bindings } = latest.current;
      const found = bindings.find(([action]) => (help ? action.id === "help" : keymap.positionOf(action) === position));
      if (found !== undefined && found[1]() !== false) event.preventDefault();
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, [enabled]);
}

function isWriting(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["radio", "checkbox", "button"].includes(target.type);
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function isControl(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("button, a, summary, [role=button]") !== null;
}
