/** The first digits of a content hash tell versions apart; with what stands behind it, as `1f2e3d4c+bfloat16`. */
export function short(version: string): string {
  return version
    .split("+")
    .map((part) => part.slice(0, 8))
    .join("+");
}
