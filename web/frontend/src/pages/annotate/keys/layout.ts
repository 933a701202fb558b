import { useSyncExternalStore } from "react";

import { t } from "../../../i18n";
import { characterAt } from "./positions";

/**
 * What the person's keyboard has at a position. Chromium tells its layout; elsewhere it is learnt from the keys that are
 * pressed, also while somebody writes, and kept. Letters of other scripts are not taken: such keyboards show Latin ones too.
 */
const STORED = "assay.layout";
const SHOWN = /^[\p{Script=Latin}\d\p{P}\p{S}]$/u;

let labels: ReadonlyMap<string, string> = stored();
let told = false;
const listeners = new Set<() => void>();

interface Keyboard {
  getLayoutMap?: () => Promise<ReadonlyMap<string, string>>;
}

function stored(): ReadonlyMap<string, string> {
  try {
    return new Map(JSON.parse(localStorage.getItem(STORED) ?? "[]") as [string, string][]);
  } catch {
    return new Map();
  }
}

function take(next: ReadonlyMap<string, string>): void {
  labels = next;
  for (const listener of listeners) listener();
}

async function ask(): Promise<void> {
  const { keyboard } = navigator as Navigator & { keyboard?: Keyboard };
  try {
    const layout = await keyboard?.getLayoutMap?.();
    if (layout === undefined || layout.size === 0) return;
    told = true;
    take(new Map([...layout].filter(([, label]) => SHOWN.test(label))));
  } catch {
    // Not told in a frame of another page: then it is learnt.
  }
}

/** From a key that was pressed alone. */
export function learn({ code, key }: Pick<KeyboardEvent, "code" | "key">): void {
  const label = key.toLowerCase();
  if (told || !/^(Key|Digit|Bracket|Minus|Equal|Semicolon|Quote|Back|Comma|Period|Slash)/.test(code) || !SHOWN.test(label)) return;
  if ((labels.get(code) ?? characterAt(code)) === label) return;
  take(new Map(labels).set(code, label));
  try {
    localStorage.setItem(STORED, JSON.stringify([...labels]));
  } catch {
    // A browser that keeps nothing: learnt anew.
  }
}

function subscribe(listener: () => void): () => void {
  if (listeners.size === 0) void ask();
  const again = () => void ask(); // another layout may be chosen by now
  window.addEventListener("focus", again);
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    window.removeEventListener("focus", again);
  };
}

/** What stands on the key at a position: "KeyZ" -> "y" on a German keyboard. */
export function labelAt(position: string): string {
  const named: Record<string, string> = { Enter: t("Enter"), Space: t("Space"), Backspace: "⌫" };
  return named[position] ?? labels.get(position) ?? characterAt(position);
}

export function useLayout(): ReadonlyMap<string, string> {
  return useSyncExternalStore(subscribe, () => labels);
}
