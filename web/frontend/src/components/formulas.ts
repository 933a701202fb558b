import "katex/dist/katex.min.css";

import type { Nodes, Root } from "hast";
import rehypeKatex from "rehype-katex";

import { t } from "../i18n";

/** TeX drawn by KaTeX; what it cannot read stays as written. A wide formula scrolls, also from the keyboard. */
const draw = rehypeKatex({ strict: "ignore", errorColor: "currentColor", maxExpand: 200, maxSize: 20 });
export default () =>
  (...given: Parameters<typeof draw>) => {
    draw(...given);
    reachable(given[0] as Root);
  };

function reachable(node: Nodes): void {
  if (node.type === "element" && Array.isArray(node.properties.className)) {
    if (node.properties.className.includes("katex-display")) Object.assign(node.properties, { tabIndex: 0, role: "group", ariaLabel: t("Formula") });
    if (node.properties.className.some((name) => String(name).startsWith("katex"))) return; // nothing of its own within
  }
  if ("children" in node) for (const child of node.children) reachable(child);
}
