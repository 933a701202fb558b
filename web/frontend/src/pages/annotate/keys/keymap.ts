import { useLocalStorage } from "@mantine/hooks";

import type { Action } from "./actions";
import { labelAt, useLayout } from "./layout";

/** The positions that a person chose, by action; kept in the browser. */
export type Chosen = Record<string, string>;

/** Keys that stay what they are: they write, move, press what has the focus, or belong to the browser. */
const FIXED = /^(Tab|Enter|Space|Escape|Backspace|Delete|Arrow.*|Home|End|Page.*|Shift.*|Control.*|Alt.*|Meta.*|OS.*|CapsLock|NumLock|ContextMenu|F\d+)$/;

export function mayBeChosen(position: string): boolean {
  return position !== "" && position !== "Process" && !FIXED.test(position);
}

export interface Keymap {
  positionOf: (action: Action) => string;
  /** What stands on its key. */
  label: (action: Action) => string;
  /** The other action of these that has the key. */
  holder: (position: string, other: Action, among: Action[]) => Action | undefined;
  choose: (action: Action, position: string) => void;
  /** Both get the other's key. */
  swap: (one: Action, two: Action) => void;
  reset: () => void;
  changed: boolean;
}

export function useKeymap(): Keymap {
  useLayout(); // drawn anew when it is known
  const [chosen, setChosen] = useLocalStorage<Chosen>({ key: "assay.keys", defaultValue: {}, getInitialValueInEffect: false });
  const at = (action: Action) => chosen[action.id] ?? action.position;
  const without = (map: Chosen, action: Action, position: string): Chosen => {
    const rest = Object.fromEntries(Object.entries(map).filter(([id]) => id !== action.id));
    return position === action.position ? rest : { ...rest, [action.id]: position };
  };
  return {
    positionOf: at,
    label: (action) => labelAt(at(action)),
    holder: (position, other, among) => among.find((action) => action.id !== other.id && at(action) === position),
    choose: (action, position) => setChosen((map) => without(map, action, position)),
    swap: (one, two) => setChosen((map) => without(without(map, one, at(two)), two, at(one))),
    reset: () => setChosen({}),
    changed: Object.keys(chosen).length > 0,
  };
}
