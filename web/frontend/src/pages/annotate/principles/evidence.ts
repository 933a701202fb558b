/**
 * From words that somebody selected on the page to a span of the text as it was written. Markdown's marks are not on the
 * page, so the letters and digits of both are compared, and what lies between them in the source belongs to the span.
 */

export interface Span {
  /** A substring of the source. */
  text: string;
  /** Whether it has all that was selected; else it is the longest part that could be found. */
  whole: boolean;
}

/** What is in the source and not on the page: addresses of links, numbers of list items, the line that opens code. */
const UNSEEN = /\]\([^)\s]*(?:\s+"[^"]*")?\)|^[ \t]*\d+[.)](?=\s)|^[ \t]*(?:```|~~~)[^\n]*$/gm;
const LETTER = /[\p{L}\p{N}]/u;
const LEAST = 12; // letters of a part that is still worth something
const LONGEST = 2000; // letters that are compared to find a part

/** The span of the source with these words; null where there is none, or too little of them. */
export function spanIn(selected: string, source: string): Span | null {
  const words = selected.trim();
  if (words === "") return null;
  if (source.includes(words)) return { text: words, whole: true };
  const query = lettersOf(words);
  const letters = lettersOf(source);
  if (query.text === "") return null;
  const start = placeOf(query.text, letters);
  if (start >= 0) {
    const [from, to] = sourceRange(letters, start, query.text.length);
    return { text: source.slice(...stretched(source, from, to, words, query)), whole: true };
  }
  const [part, length] = longestCommon(query.text.slice(0, LONGEST), letters.text);
  if (length < LEAST) return null;
  const [from, to] = sourceRange(letters, part, length);
  // A pair of surrogates is one letter: neither half goes alone.
  return { text: source.slice(from, to).replace(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, ""), whole: false };
}

/** Letters and digits alone, and where each of them stands in the text. */
export interface Letters {
  text: string;
  at: number[];
}

export function lettersOf(text: string): Letters {
  const unseen = [...text.matchAll(UNSEEN)].map((match) => [match.index, match.index + match[0].length] as const);
  let letters = "";
  const at: number[] = [];
  let next = 0;
  for (let position = 0; position < text.length; ) {
    while (next < unseen.length && position >= unseen[next]![1]) next++;
    const character = String.fromCodePoint(text.codePointAt(position)!);
    const hidden = next < unseen.length && position >= unseen[next]![0];
    if (!hidden && LETTER.test(character)) {
      letters += character;
      for (let unit = 0; unit < character.length; unit++) at.push(position + unit);
    }
    position += character.length;
  }
  return { text: letters, at };
}

/** Where the wanted letters begin among the others: rather between whole words than within some; -1 for nowhere. */
export function placeOf(query: string, { text, at }: Letters): number {
  const apart = (one: number) => one <= 0 || one >= at.length || at[one]! - at[one - 1]! > 1;
  const first = text.indexOf(query);
  for (let position = first; position >= 0; position = text.indexOf(query, position + 1)) {
    if (apart(position) && apart(position + query.length)) return position;
  }
  return first;
}

function sourceRange({ at }: Letters, start: number, length: number): [number, number] {
  return [at[start]!, at[start + length - 1]! + 1];
}

/** With the marks before and after, as far as they were selected too: a bracket, a full stop. */
function stretched(source: string, from: number, to: number, words: string, query: Letters): [number, number] {
  const head = words.slice(0, query.at[0]);
  const tail = words.slice(query.at[query.at.length - 1]! + 1);
  for (let n = 0; n < tail.length && source[to] === tail[n]; n++) to++;
  for (let n = head.length - 1; n >= 0 && from > 0 && source[from - 1] === head[n]; n--) from--;
  return [from, to];
}

/** The longest run of letters that both have: its place in the second, and its length. */
function longestCommon(one: string, two: string): [number, number] {
  let best = 0;
  let end = 0;
  let before = new Uint16Array(two.length + 1);
  let now = new Uint16Array(two.length + 1);
  for (let i = 0; i < one.length; i++) {
    for (let j = 0; j < two.length; j++) {
      const run = one.charCodeAt(i) === two.charCodeAt(j) ? before[j]! + 1 : 0;
      now[j + 1] = run;
      if (run > best) [best, end] = [run, j + 1];
    }
    [before, now] = [now, before];
  }
  return [end - best, best];
}
