import { lazy, type ComponentType, type LazyExoticComponent } from "react";

const RELOADED = "assay.reloaded ";
const AGAIN_MS = 60_000;
const ASK_MS = 1000;

/**
 * A component whose file is loaded when it is first shown. While the server is away it waits for it. A file that is gone,
 * because the server was upgraded since this page was loaded, reloads the page once: drafts and unsent votes survive that.
 */
export function lazyPage<P>(load: () => Promise<{ default: ComponentType<P> }>): LazyPage<P> {
  return Object.assign(lazy(() => loaded(load)), { preload: () => void load().catch(() => undefined) });
}

/** `preload`: begin to load the file before the component is shown. */
export type LazyPage<P = object> = LazyExoticComponent<ComponentType<P>> & { preload: () => void };

async function loaded<T>(load: () => Promise<T>): Promise<T> {
  try {
    return await load();
  } catch {
    await serverAnswers();
  }
  try {
    return await load();
  } catch (error) {
    if (!reloadOnce(error)) throw error;
    return new Promise<T>(() => undefined); // the page is on its way out
  }
}

/** Resolves when the server answers. */
async function serverAnswers(): Promise<void> {
  for (;;) {
    try {
      if ((await fetch("/api/session", { cache: "no-store" })).status < 500) return;
    } catch {
      // away: asked again
    }
    await new Promise((resolve) => setTimeout(resolve, ASK_MS));
  }
}

/** False where the same file has reloaded the page within a minute: a second time would not help. */
function reloadOnce(error: unknown): boolean {
  const key = RELOADED + (error instanceof Error ? error.message : "");
  const last = Number(sessionStorage.getItem(key) ?? 0);
  if (Date.now() - last < AGAIN_MS) return false;
  sessionStorage.setItem(key, String(Date.now()));
  window.location.reload();
  return true;
}
