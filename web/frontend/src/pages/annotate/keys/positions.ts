/** Positions on the keyboard, as `KeyboardEvent.code` names them: the same under Caps Lock and in every layout. */

const SIGNS: Record<string, string> = {
  ...{ Minus: "-", Equal: "=", BracketLeft: "[", BracketRight: "]", Backslash: "\\", Semicolon: ";" },
  ...{ Quote: "'", Backquote: "`", Comma: ",", Period: ".", Slash: "/", Space: " " },
};

/** Where a character is on a US keyboard, for which question types name their keys: "a" -> "KeyA". */
export function positionOfCharacter(character: string): string | null {
  if (/^[a-z]$/i.test(character)) return `Key${character.toUpperCase()}`;
  if (/^\d$/.test(character)) return `Digit${character}`;
  const sign = character === "?" ? "/" : character;
  return Object.keys(SIGNS).find((position) => SIGNS[position] === sign) ?? null;
}

/** What a US keyboard has there, or the position's name: "KeyA" -> "a". */
export function characterAt(position: string): string {
  const known = /^(?:Key([A-Z])|Digit(\d))$/.exec(position);
  if (known) return (known[1] ?? known[2]!).toLowerCase();
  return SIGNS[position] ?? position;
}

type Pressed = Pick<KeyboardEvent, "code" | "key">;

/** The position that was pressed. Keyboards on screens and remote ones name none: there the character stands for it. */
export function positionOf({ code, key }: Pressed): string {
  if (code === "" || code === "Unknown" || code === "Unidentified") return positionOfCharacter(key) ?? key;
  if (code === "NumpadEnter") return "Enter";
  if (code === "NumpadSubtract") return positionOf({ code: "", key: "-" });
  if (/^Numpad\d$/.test(code) && /^\d$/.test(key)) return `Digit${key}`;
  return code;
}

/** A key alone. Shift counts as none where it makes a digit, which it does on French keyboards. */
export function isAlone(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.getModifierState("AltGraph")) return false;
  return !event.shiftKey || /^\d$/.test(event.key);
}
