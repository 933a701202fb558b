import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { beforeEach, describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../../../testing/render";
import type { PrincipleDraft } from "../drafts";
import { ResponsePair } from "../session/ResponsePair";
import type { Item } from "../words";
import { answered } from "./answers";
import { PrincipleVotes } from "./PrincipleVotes";
import { rangeOf } from "./selection";

const ITEM: Item = {
  ticket: "1-1-vote",
  seal: "s",
  role: "vote",
  prompt: [{ role: "user", content: "Why?" }],
  first: "It is **very** short, and clear.",
  second: "A [longer](https://example.org) one.",
  turns: [null, null],
  attributes: null,
  guideline: "",
  checked: null,
  reason: "",
  principles: ["is clear", "is short"],
  expires_at: 0,
  question: "pair",
  component: "PairPreference",
  responses: [],
  settings: {},
  number: 1,
  suggestions: [],
};

let kept: PrincipleDraft[];
beforeEach(() => {
  kept = [];
});

function Panel() {
  const [principles, setPrinciples] = useState<PrincipleDraft[]>([]);
  const keep = (next: PrincipleDraft[]) => {
    kept = next;
    setPrinciples(next);
  };
  return (
    <>
      <ResponsePair item={ITEM} look="rendered" />
      <PrincipleVotes item={ITEM} principles={principles} onChange={keep} disabled={false} keys />
    </>
  );
}

const group = (name: string) => screen.getByRole("radiogroup", { name });
const answer = (name: string, word: string) => within(group(name)).getByRole("radio", { name: word });

/** As a person would with the mouse: from the beginning of one text to the end of another. */
function select(from: string, to: string): void {
  const [one, two] = [screen.getByText(from, { exact: false }), screen.getByText(to, { exact: false })];
  const selection = window.getSelection()!;
  selection.removeAllRanges();
  const range = document.createRange();
  range.setStart(one.firstChild!, 0);
  range.setEnd(two.lastChild!, two.lastChild!.textContent!.length);
  selection.addRange(range);
}

describe("principles", () => {
  it("are answered by number keys, arrows and clicks, each for both responses", async () => {
    const { container } = renderAt(<Panel />);
    const user = userEvent.setup();
    await user.keyboard("p1{ArrowDown}3{ArrowDown}{ArrowRight}{ArrowRight}");
    expect(answered(kept)).toEqual([
      { principle: "is clear", place: "first", answer: "yes", evidence: null },
      { principle: "is clear", place: "second", answer: "no", evidence: null },
      { principle: "is short", place: "first", answer: "partially", evidence: null },
    ]);
    expect(answer("A: is short", "partly")).toBeChecked();
    await user.click(answer("B: is clear", "no"));
    await user.click(answer("B: is short", "yes"));
    expect(screen.getByText("Principles, 3 of 4 answered")).toBeInTheDocument();
    await user.keyboard("0{Escape}2");
    expect(screen.getByText("Principles, 2 of 4 answered")).toBeInTheDocument();
    expect(document.body).toHaveFocus();
    expect((await axe(container)).violations).toEqual([]);
  });

  it("take the words selected in a response as evidence, as its source has them", async () => {
    renderAt(<Panel />);
    const user = userEvent.setup();
    await user.click(answer("B: is short", "no"));
    select("It is", "short, and clear.");
    await user.keyboard("e");
    expect(kept).toContainEqual({ principle: "is short", place: "first", answer: null, evidence: "It is **very** short, and clear." });
    expect(screen.getByText(/Counts once A has an answer/)).toBeInTheDocument();
    expect(answered(kept)).toHaveLength(1);
    await user.keyboard("p1");
    expect(answered(kept)).toHaveLength(2);
    await user.click(screen.getByRole("button", { name: "Remove the evidence of A: is short" }));
    expect(answered(kept)).toContainEqual({ principle: "is short", place: "first", answer: "yes", evidence: null });
  });

  it("refuse a selection that reaches out of a response, and words that it does not have", async () => {
    renderAt(<Panel />);
    const user = userEvent.setup();
    select("It is", " one.");
    await user.keyboard("e");
    expect(screen.getByRole("status")).toHaveTextContent("within one response");
    window.getSelection()!.removeAllRanges();
    await user.keyboard("e");
    const box = await screen.findByLabelText("Words of A that show it");
    await user.type(box, "never said here{Enter}");
    expect(screen.getByRole("status")).toHaveTextContent("not in the text of A");
    await user.clear(box);
    await user.type(box, "very  short{Enter}");
    expect(kept).toEqual([{ principle: "is clear", place: "first", answer: null, evidence: "very** short" }]);
  });

  it("find the words of the source again where they are shown", () => {
    renderAt(<Panel />);
    const [first, second] = [...document.querySelectorAll("[data-response]")];
    expect(rangeOf(first!, "is **very** short")?.toString()).toBe("is very short");
    expect(rangeOf(second!, "[longer](https://example.org) one")?.toString()).toBe("longer one");
    expect(rangeOf(first!, "nowhere")).toBeNull();
  });
});
