import { vi } from "vitest";

/**
 * The page as the next file of tests expects it. They share one: what a file left on it, in the browser's storage, address
 * and clock or in place of globals goes, and our modules are read again, for some hold what a file gave them (`vi.mock`).
 */
export function clearPage(): void {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.resetModules();
  window.localStorage.clear();
  window.sessionStorage.clear();
  window.history.replaceState(null, "", "/");
  document.title = "";
  document.body.replaceChildren();
  for (const name of document.documentElement.getAttributeNames()) document.documentElement.removeAttribute(name);
}
