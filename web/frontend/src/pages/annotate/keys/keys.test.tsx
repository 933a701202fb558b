import { fireEvent, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";

import { renderAt } from "../../../testing/render";
import { numberKey, optionKey, SESSION, TASK } from "./actions";
import { KeyHelp } from "./KeyHelp";
import { labelAt, learn } from "./layout";
import { positionOf, positionOfCharacter } from "./positions";
import { useKeys, type Binding } from "./useKeys";

const FIRST = optionKey("choice", { name: "first", key: "a", label: "A is better" });
const LATER = optionKey("skip", { name: "later", key: "u", label: "Not now" });
const GROUPS = [
  { title: "Decide", actions: [FIRST, numberKey(2)] },
  { title: "Skip", actions: [LATER], apart: true },
  { title: "Session", actions: Object.values(SESSION) },
];

function Pressing({ done }: { done: (what: string) => void }) {
  const bindings: Binding[] = [FIRST, numberKey(2), TASK.back, SESSION.undo, SESSION.help].map((action) => [action, () => done(action.id)]);
  useKeys(true, bindings);
  return <input aria-label="words" />;
}

function pressing() {
  const done = vi.fn();
  renderAt(<Pressing done={done} />);
  return { done, press: (code: string, key: string, more = {}) => fireEvent.keyDown(document.body, { code, key, ...more }) };
}

describe("keys", () => {
  it("go by their place: in Cyrillic, under Caps Lock, on French and German keyboards, from the number block", () => {
    const { done, press } = pressing();
    press("KeyA", "ф");
    press("KeyA", "A"); // Caps Lock: no Shift
    press("KeyA", "q"); // AZERTY
    expect(done.mock.calls).toEqual([["choice:first"], ["choice:first"], ["choice:first"]]);
    done.mockClear();
    press("Digit2", "é");
    press("Digit2", "2", { shiftKey: true }); // AZERTY's digits
    press("Numpad2", "2");
    expect(done.mock.calls).toEqual([["number:2"], ["number:2"], ["number:2"]]);
    done.mockClear();
    press("KeyZ", "y"); // QWERTZ
    press("Minus", "?", { shiftKey: true }); // its question mark
    press("", "u"); // a keyboard on a screen names no place
    expect(done.mock.calls).toEqual([["back"], ["help"], ["undo"]]);
  });

  it("are nobody's with a modifier, held down, or while somebody writes", () => {
    const { done, press } = pressing();
    press("KeyA", "A", { shiftKey: true });
    press("KeyA", "a", { ctrlKey: true });
    press("KeyA", "a", { metaKey: true });
    press("KeyA", "a", { repeat: true });
    press("Numpad2", "ArrowDown"); // Num Lock off
    fireEvent.keyDown(screen.getByLabelText("words"), { code: "KeyA", key: "a" });
    expect(done).not.toHaveBeenCalled();
  });

  it("are labelled as the keyboard is, once that is known", () => {
    learn({ code: "KeyY", key: "Z" });
    learn({ code: "KeyB", key: "и" }); // such keyboards show Latin letters too
    learn({ code: "Enter", key: "Enter" });
    expect([labelAt("KeyY"), labelAt("KeyB"), labelAt("Enter"), labelAt("Digit1")]).toEqual(["z", "b", "Enter", "1"]);
    expect([positionOfCharacter("?"), positionOfCharacter("ü"), positionOf({ code: "Unidentified", key: "x" })]).toEqual(["Slash", null, "KeyX"]);
  });

  it("can be changed by their person, who is told which is taken, and are reset", async () => {
    const { done, press } = pressing();
    renderAt(<KeyHelp opened onClose={() => {}} groups={GROUPS} keys onKeys={() => {}} pause onPause={() => {}} />);
    const user = userEvent.setup();
    const dialog = await screen.findByRole("dialog");
    const change = async (label: string, code: string, key = "") => {
      await user.click(within(dialog).getAllByRole("button", { name: `${label}: change this key` })[0]!);
      press(code, key);
    };
    await change("a", "KeyJ", "j");
    expect(within(dialog).getByRole("button", { name: "j: change this key" })).toBeInTheDocument();
    expect(done).not.toHaveBeenCalled();
    await change("j", "KeyU", "u"); // undo's; what is said after skipping has it too, apart
    expect(within(dialog).getByRole("alert")).toHaveTextContent("u is taken: undo the last vote");
    await user.click(within(dialog).getByRole("button", { name: "Swap the two" }));
    press("KeyU", "u");
    press("KeyJ", "j");
    press("KeyA", "a");
    expect(done.mock.calls).toEqual([["choice:first"], ["undo"]]);
    await change("u", "Enter", "Enter");
    expect(within(dialog).getByRole("alert")).toHaveTextContent("Enter stays what it is");
    await user.click(within(dialog).getByRole("button", { name: "All keys as they were" }));
    done.mockClear();
    press("KeyA", "a");
    press("KeyU", "u");
    expect(done.mock.calls).toEqual([["choice:first"], ["undo"]]);
  });
});
