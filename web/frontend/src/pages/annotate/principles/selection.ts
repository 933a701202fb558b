import type { Place } from "../words";
import { lettersOf, placeOf } from "./evidence";

/** Marks the element that has a response's text and nothing else. */
const RESPONSE = "data-response";
const HIGHLIGHT = "assay-evidence";

export type Selected = { place: Place; text: string } | "across" | null;

/** What is selected in one response; "across" where it reaches out of it; null for nothing. */
export function selectedWords(): Selected {
  const selection = window.getSelection();
  if (selection === null || selection.isCollapsed || selection.toString().trim() === "") return null;
  const [from, to] = [responseOf(selection.anchorNode), responseOf(selection.focusNode)];
  if (from === null && to === null) return null;
  if (from === null || from !== to) return "across";
  return { place: from.getAttribute(RESPONSE) as Place, text: selection.toString() };
}

function responseOf(node: Node | null): Element | null {
  const element = node instanceof Element ? node : node?.parentElement;
  return element?.closest(`[${RESPONSE}]`) ?? null;
}

/** Highlight words of the sources where they are shown; a browser without highlights shows them in the panel only. */
export function highlight(evidence: { place: Place; text: string }[]): void {
  if (typeof CSS === "undefined" || !("highlights" in CSS)) return;
  const ranges = evidence.flatMap(({ place: position, text }) => rangeOf(document.querySelector(`[${RESPONSE}="${position}"]`), text) ?? []);
  if (ranges.length === 0) CSS.highlights.delete(HIGHLIGHT);
  else CSS.highlights.set(HIGHLIGHT, new Highlight(...ranges));
}

/** Where the words stand in an element's text, whatever marks are between them in the source; null where they do not. */
export function rangeOf(element: Element | null, words: string): Range | null {
  if (element === null) return null;
  const nodes: { node: Text; from: number }[] = [];
  let text = "";
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    nodes.push({ node: node as Text, from: text.length });
    text += node.nodeValue ?? "";
  }
  const query = lettersOf(words).text;
  const letters = lettersOf(text);
  const start = query === "" ? -1 : placeOf(query, letters);
  if (start < 0) return null;
  const range = document.createRange();
  const put = (position: number, set: (node: Text, offset: number) => void, after: number) => {
    const { node, from } = nodes.findLast((one) => one.from <= position)!;
    set(node, position - from + after);
  };
  put(letters.at[start]!, (node, offset) => range.setStart(node, offset), 0);
  put(letters.at[start + query.length - 1]!, (node, offset) => range.setEnd(node, offset), 1);
  return range;
}
