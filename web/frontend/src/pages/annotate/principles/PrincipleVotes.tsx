import "./principles.css";

import { Button, Text, TextInput } from "@mantine/core";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";

import type { PrincipleDraft } from "../drafts";
import { useKeys } from "../useKeys";
import type { Item, Place } from "../words";
import { ANSWERS, answerOf, draftAt, LETTERS, withChange, type Spot } from "./answers";
import { spanIn } from "./evidence";
import { PrincipleRow } from "./PrincipleRow";
import { highlight, selectedWords } from "./selection";

interface PrincipleVotesProps {
  item: Item;
  principles: PrincipleDraft[];
  onChange: (principles: PrincipleDraft[]) => void;
  disabled: boolean;
  /** Whether single keys outside the panel, `p` and `e`, are this panel's too. */
  keys: boolean;
}

const PLACES: Place[] = ["first", "second"];

/** Whether each response fulfils each of the item's principles, and the words of the response that show it. */
export function PrincipleVotes({ item, principles, onChange, disabled, keys }: PrincipleVotesProps) {
  const spots = item.principles.flatMap((principle) => PLACES.map((side) => ({ principle, place: side })));
  const [active, setActive] = useState(0); // among the spots; evidence goes to its principle
  const [note, setNote] = useState<string | null>(null);
  const [writing, setWriting] = useState(false);
  const panel = useRef<HTMLElement>(null);
  const box = useRef<HTMLInputElement>(null);
  const spot = spots[active]!;

  // After each drawing, for the texts may be drawn anew: with the differences, or without Markdown.
  useEffect(() => {
    highlight(principles.flatMap(({ place: side, evidence }) => (evidence === null ? [] : [{ place: side, text: evidence }])));
  });
  useEffect(() => () => highlight([]), []);

  const change = (at: Spot, part: Partial<PrincipleDraft>) => {
    setNote(null);
    onChange(withChange(principles, at, part));
  };

  const focus = (number: number) => {
    const groups = panel.current?.querySelectorAll('[role="radiogroup"]');
    groups?.[Math.max(0, Math.min(spots.length - 1, number))]?.querySelector<HTMLElement>('[tabindex="0"]')?.focus();
  };

  const attachTo = (side: Place, words: string): boolean => {
    const span = spanIn(words, item[side]);
    if (span === null) {
      setNote(`These words are not in the text of ${LETTERS[side]} as it was written.`);
      return false;
    }
    onChange(withChange(principles, { ...spot, place: side }, { evidence: span.text }));
    setNote(span.whole ? `Attached to ${LETTERS[side]}.` : `Only this part is in the text of ${LETTERS[side]} as it was written; attached.`);
    return true;
  };

  const attach = () => {
    const selected = selectedWords();
    if (selected === "across") setNote("Select words within one response.");
    else if (selected !== null) {
      setActive(active - (active % 2) + PLACES.indexOf(selected.place));
      attachTo(selected.place, selected.text);
    } else {
      setWriting(true);
      setTimeout(() => box.current?.focus());
    }
  };

  const stopWriting = () => {
    setWriting(false);
    focus(active);
  };

  const pressed = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target instanceof HTMLInputElement) return;
    const answer = answerOf(event.key);
    const row = (event.target as HTMLElement).closest('[role="radiogroup"]') !== null;
    if (answer !== null) change(spot, { answer });
    else if (event.key === "0" || event.key === "Backspace") change(spot, { answer: null });
    else if (event.key === "e") attach();
    else if (event.key === "Escape" && document.activeElement instanceof HTMLElement) document.activeElement.blur();
    else if (row && event.key === "ArrowDown") focus(active + 1);
    else if (row && event.key === "ArrowUp") focus(active - 1);
    else if (row && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const now = ANSWERS.findIndex((one) => one.answer === draftAt(principles, spot).answer);
      const step = event.key === "ArrowRight" ? 1 : -1;
      const next = ANSWERS[now < 0 ? (step > 0 ? 0 : ANSWERS.length - 1) : (now + step + ANSWERS.length) % ANSWERS.length]!;
      change(spot, { answer: next.answer });
      setTimeout(() => focus(active));
    } else return;
    event.preventDefault();
  };

  useKeys(keys && !disabled, (key) => {
    if (key === "e") attach();
    else if (key === "p") focus(active);
    else return false;
    return true;
  });

  const done = principles.filter((one) => one.answer !== null).length;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- keys of the controls within
    <section ref={panel} className="panel" aria-label="Principles" onKeyDown={pressed}>
      <Text size="xs" fw={600} className="dim" mb={2}>
        Principles, {done} of {spots.length} answered
      </Text>
      {item.principles.map((principle) => (
        <div key={principle} className="principle" data-active={principle === spot.principle || undefined}>
          <Text size="sm" style={{ overflowWrap: "anywhere" }}>
            {principle}
          </Text>
          {PLACES.map((side) => (
            <PrincipleRow
              key={side}
              draft={draftAt(principles, { principle, place: side })}
              disabled={disabled}
              onFocus={() => setActive(spots.findIndex((one) => one.principle === principle && one.place === side))}
              change={(part) => change({ principle, place: side }, part)}
            />
          ))}
          {principle === spot.principle &&
            (writing ? (
              <TextInput
                ref={box}
                mt={6}
                label={`Words of ${LETTERS[spot.place]} that show it`}
                description="Select them in the response, or write them here. Enter attaches, Escape leaves."
                onKeyDown={(event) => {
                  if (event.key !== "Enter" && event.key !== "Escape") return;
                  event.preventDefault(); // else it would press the button that has the focus next
                  if (event.key === "Escape" || attachTo(spot.place, event.currentTarget.value)) stopWriting();
                }}
              />
            ) : (
              <Button
                mt={6}
                size="compact-xs"
                variant="subtle"
                color="gray"
                disabled={disabled}
                aria-keyshortcuts="e"
                onMouseDown={(event) => event.preventDefault()} // the selection stays
                onClick={attach}
                rightSection={<kbd aria-hidden>e</kbd>}
              >
                Attach selected words
              </Button>
            ))}
        </div>
      ))}
      <Text size="xs" className="dim" role="status" mt={4}>
        {note ?? "Here: 1 yes, 2 partly, 3 no, 0 none; arrows move."}
      </Text>
    </section>
  );
}
