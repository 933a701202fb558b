import { useEffect, useSyncExternalStore } from "react";
import type { Options } from "react-markdown";

type Plugin = NonNullable<Options["rehypePlugins"]>[number];

/** What draws formulas, and what colours code: 450 kB that no text waits for. Each is loaded for the first text with such. */
const formulas = later(() => import("./formulas"));
const colours = later(() => import("./codeColours"));

/** The plug-ins that this text needs and that are loaded; the text is drawn again when another one is. */
export function useTextDrawing(text: string): Plugin[] {
  const drawsFormulas = useLater(formulas, text.includes("$$"));
  const drawsCode = useLater(colours, /```|~~~/.test(text));
  return [drawsFormulas, drawsCode].filter((plugin) => plugin !== null);
}

interface Later {
  plugin: Plugin | null;
  load: () => void;
  subscribe: (changed: () => void) => () => void;
}

/** Loaded once. What could not be loaded is tried again for the next text; until then TeX and code stand as written. */
function later(load: () => Promise<{ default: Plugin }>): Later {
  const listeners = new Set<() => void>();
  let loading = false;
  const self: Later = {
    plugin: null,
    load: () => {
      if (loading) return;
      loading = true;
      load().then(
        (loaded) => {
          self.plugin = loaded.default;
          for (const changed of listeners) changed();
        },
        () => {
          loading = false;
        },
      );
    },
    subscribe: (changed) => {
      listeners.add(changed);
      return () => listeners.delete(changed);
    },
  };
  return self;
}

function useLater(what: Later, needed: boolean): Plugin | null {
  const plugin = useSyncExternalStore(what.subscribe, () => what.plugin);
  useEffect(() => {
    if (needed && plugin === null) what.load();
  }, [what, needed, plugin]);
  return needed ? plugin : null;
}
