/**
 * A text cut where the overlap stands in it: [before, overlap, after], or null where it is not found. The overlap is in
 * lower case and without punctuation, as the check compares; the text is as it was written.
 */
export function cutAround(text: string, overlap: string): [string, string, string] | null {
  const parts = overlap.match(/[\p{L}\p{N}\p{M}]+/gu);
  if (parts === null) return null;
  const between = "[^\\p{L}\\p{N}\\p{M}]*";
  const match = new RegExp(`(?<![\\p{L}\\p{N}])${parts.join(between)}(?![\\p{L}\\p{N}])`, "iu").exec(text);
  if (match === null) return null;
  return [text.slice(0, match.index), match[0], text.slice(match.index + match[0].length)];
}
