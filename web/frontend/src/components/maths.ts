// Fenced and indented code, code spans, and maths that is delimited by $$ already: left as they are.
const KEPT = /(^ {0,3}(`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:^ {0,3}\2[`~]*[ \t]*$|$(?![\s\S]))|(`+)(?!`)[\s\S]*?[^`]\3(?!`)|\$\$[\s\S]*?\$\$)/m;
const DISPLAY = /\\\[([\s\S]+?)\\\]/g;
const INLINE = /\\\(([\s\S]+?)\\\)/g;
// Pandoc's rule: no space inside the dollars, no digit after the last. "$5 and $10" is money.
const DOLLARS = /(?<![\\$])\$(?![\s$])((?:[^$\n\\]|\\[^\n])+?)(?<!\s)\$(?![\d$])/g;
// "15*20=300": a product, not emphasis that swallows its stars; not in lines of indented code.
const PRODUCT = /^(?: {4}|\t).*|(?<=[\d)])\*(?=[\d(])/gm;

/**
 * The text with all its TeX between `$$`, however its writer delimited it, and products of numbers with their stars. Code
 * and prices stay as they are.
 */
export function delimited(text: string): string {
  if (!/[$\\]|[\d)]\*/.test(text)) return text;
  let remaining = text;
  let out = "";
  for (let match = KEPT.exec(remaining); match !== null; match = KEPT.exec(remaining)) {
    out += maths(remaining.slice(0, match.index)) + match[0];
    remaining = remaining.slice(match.index + match[0].length);
  }
  return out + maths(remaining);
}

function maths(text: string): string {
  return text
    .replace(DISPLAY, (_, tex: string) => `\n$$\n${tex.trim()}\n$$\n`)
    .replace(INLINE, (_, tex: string) => `$$${tex}$$`)
    .replace(DOLLARS, (_, tex: string) => `$$${tex}$$`)
    .split(/(\$\$[\s\S]*?\$\$)/)
    .map((part, number) => (number % 2 === 1 ? part : part.replace(PRODUCT, (symbol) => (symbol === "*" ? "\\*" : symbol))))
    .join("");
}
