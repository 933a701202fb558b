import type { Element, Nodes, Root } from "hast";

/**
 * The direction of each part of a text by its own words: paragraphs, headings and cells by the browser, what holds such
 * parts by the first letter that has a direction, for `dir=auto` does not look into parts that have theirs. Code runs left to right.
 */
export function directions(): (tree: Root) => void {
  return (tree) => visit(tree);
}

const LEAVES = new Set(["p", "h1", "h2", "h3", "h4", "h5", "h6", "td", "th", "code"]);
const HOLDERS = new Set(["ul", "ol", "blockquote", "table"]);
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

function visit(node: Nodes): void {
  if (node.type === "element") {
    if (node.tagName === "pre") {
      node.properties.dir = "ltr";
      return;
    }
    if (LEAVES.has(node.tagName)) node.properties.dir = "auto";
    else if (HOLDERS.has(node.tagName)) node.properties.dir = directionOf(node);
  }
  if ("children" in node) for (const child of node.children) visit(child);
}

function directionOf(element: Element): "rtl" | "ltr" {
  const letter = firstLetter(element);
  return letter !== null && RIGHT_TO_LEFT.test(letter) ? "rtl" : "ltr";
}

function firstLetter(node: Nodes): string | null {
  if (node.type === "text") return /\p{L}/u.exec(node.value)?.[0] ?? null;
  if (!("children" in node)) return null;
  for (const child of node.children) {
    const letter = firstLetter(child);
    if (letter !== null) return letter;
  }
  return null;
}
