/** The first digits of a content hash tell versions apart. */
export function short(version: string): string {
  return version.slice(0, 8);
}
