/// <reference types="remark-parse" />
import { gfmFromMarkdown } from "mdast-util-gfm";
import { mathFromMarkdown } from "mdast-util-math";
import { gfm } from "micromark-extension-gfm";
import { math } from "micromark-extension-math";
import type { Processor } from "unified";

/**
 * GitHub's Markdown and TeX between `$$`: what remark-gfm and remark-math read, without their writers of Markdown (a third
 * of a Markdown reader's size). Prices ("from $5 to $10") are commoner than TeX between single dollars: `delimited` tells
 * them apart.
 */
export function markdownSyntax(this: Processor): void {
  const data = this.data();
  (data.micromarkExtensions ??= []).push(gfm(), math({ singleDollarTextMath: false }));
  (data.fromMarkdownExtensions ??= []).push(gfmFromMarkdown(), mathFromMarkdown());
}
