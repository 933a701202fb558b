import type { Options } from "react-markdown";

import { later, useLater } from "./later";

type Plugin = NonNullable<Options["rehypePlugins"]>[number];

/** What draws formulas, and what colours code: 450 kB that no text waits for. Each is loaded for the first text with such. */
const formulas = later<Plugin>(async () => (await import("./formulas")).default);
const colours = later<Plugin>(async () => (await import("./codeColours")).default);

/** The plug-ins that this text needs and that are loaded; the text is drawn again when another one is. */
export function useTextDrawing(text: string): Plugin[] {
  const drawsFormulas = useLater(formulas, text.includes("$$"));
  const drawsCode = useLater(colours, /```|~~~/.test(text));
  return [drawsFormulas, drawsCode].filter((plugin) => plugin !== null);
}
