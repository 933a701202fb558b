import type { ComponentType } from "react";

const HELD = "assay.font";
const QUIET_MS = 1000;

/**
 * The page's font, 48 kB. It is read at once by a browser that has it, and else after everything that shows something, in
 * the system's font until then.
 */
export async function loadFont(): Promise<void> {
  if (window.localStorage.getItem(HELD) === null) await quiet();
  try {
    await import("@fontsource-variable/inter");
    await document.fonts.load("1em 'Inter Variable'");
    window.localStorage.setItem(HELD, "1");
  } catch {
    // The system's font is as good to read.
  }
}

/** Where notifications are shown; those of before it was loaded are shown then. Nothing without it: they repeat the page. */
export async function loadNotifications(): Promise<{ default: ComponentType }> {
  await quiet();
  return import("./Notifications").catch(() => ({ default: () => null }));
}

/** Resolves when nothing has come over the network for a while. */
function quiet(): Promise<void> {
  return new Promise((resolve) => {
    let timer = setTimeout(finish, QUIET_MS);
    const observer = new PerformanceObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(finish, QUIET_MS);
    });
    observer.observe({ type: "resource" });
    function finish(): void {
      observer.disconnect();
      resolve();
    }
  });
}
