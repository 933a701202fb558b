import { fixed } from "./figure";
import { NONE } from "./none";

/** A share from 0 to 1 as percent. */
export function percent(share: number | null | undefined, digits = 1): string {
  return share == null ? NONE : `${fixed(100 * share, digits)} %`;
}
