import type { Nodes, Root, RootContent } from "mdast";

import { t } from "../i18n";

/** HTML and other tags that stand by themselves: shown as they were written, with their lines, and said to be so. */
export function writtenTags(): (tree: Root) => void {
  return (tree) => visit(tree);
}

const BLOCKS = new Set(["root", "blockquote", "listItem", "footnoteDefinition"]);

function visit(node: Nodes): void {
  if (!("children" in node)) return;
  node.children.forEach((child, at) => {
    if (child.type === "html" && BLOCKS.has(node.type)) (node.children as RootContent[])[at] = shown(child.value);
    else visit(child);
  });
}

function shown(value: string): RootContent {
  const hProperties = { className: ["markdown-tags"], dir: "auto", dataNote: t("Tags are shown as they are written") };
  // Its own child: a text of Markdown would lose the spaces that its lines begin with.
  return { type: "paragraph", children: [], data: { hName: "div", hProperties, hChildren: [{ type: "text", value }] } };
}
