import { useEffect, useRef } from "react";

/**
 * Single keys anywhere on the page, but not while somebody writes, with a modifier, or held down. `onKey` says whether
 * the key was one of its own.
 */
export function useKeys(enabled: boolean, onKey: (key: string) => boolean): void {
  const latest = useRef(onKey);
  useEffect(() => {
    latest.current = onKey;
  });
  useEffect(() => {
    if (!enabled) return;
    const pressed = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
      if (isWriting(event.target)) return;
      if ((event.key === "Enter" || event.key === " ") && isControl(event.target)) return; // it presses that control
      if (latest.current(event.key)) event.preventDefault();
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
