import type { Action } from "./actions";
import { useKeymap } from "./keymap";

/** The key of an action, as it is labelled on the person's keyboard. */
export function Key({ of }: { of: Action }) {
  return <kbd aria-hidden>{useKeymap().label(of)}</kbd>;
}
