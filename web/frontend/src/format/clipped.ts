/** A text that may be long, cut to `most` characters where it is longer. */
export function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
