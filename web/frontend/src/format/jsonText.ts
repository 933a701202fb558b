/**
 * JSON text with a line for each value, its tokens as they were written: a parsed and rewritten number could be another
 * one (1.0, or more digits than a float has). Null for what is no JSON object or array.
 */
export function indented(text: string): string | null {
  try {
    if (typeof JSON.parse(text) !== "object") return null;
  } catch {
    return null;
  }
  let depth = 0;
  return (text.match(TOKEN) ?? [])
    .map((token, n, tokens) => {
      const empty = /^[[{]$/.test(token) && /^[\]}]$/.test(tokens[n + 1] ?? "");
      if (/^[[{]$/.test(token)) depth++;
      if (/^[\]}]$/.test(token)) return /^[[{]$/.test(tokens[n - 1] ?? "") ? (depth--, token) : `\n${"  ".repeat(--depth)}${token}`;
      if (token === ":") return ": ";
      return /^[[{,]$/.test(token) && !empty ? `${token}\n${"  ".repeat(depth)}` : token;
    })
    .join("");
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
