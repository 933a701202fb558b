import "./principles.css";

import { Button, Text, TextInput } from "@mantine/core";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";

import { t } from "../../../i18n";
import type { PrincipleDraft } from "../drafts";
import { numberKey, PRINCIPLES } from "../keys/actions";
import { Key } from "../keys/Key";
import { useKeymap } from "../keys/keymap";
import { isAlone, positionOf } from "../keys/positions";
import { useKeys } from "../keys/useKeys";
import type { Item, Place } from "../words";
import { ANSWERS, draftAt, LETTERS, withChange, type Spot } from "./answers";
import { spanIn } from "./evidence";
import { PrincipleRow } from "./PrincipleRow";
import { highlight, selectedWords } from "./selection";

interface PrincipleVotesProps {
  item: Item;
  principles: PrincipleDraft[];
  onChange: (principles: PrincipleDraft[]) => void;
  disabled: boolean;
  /** Whether single keys outside the panel, that go there and attach evidence, are this panel's too. */
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
  const keymap = useKeymap();

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
      setNote(t("These words are not in the text of {{letter}} as it was written.", { letter: LETTERS[side] }));
      return false;
    }
    onChange(withChange(principles, { ...spot, place: side }, { evidence: span.text }));
    setNote(
      span.whole
        ? t("Attached to {{letter}}.", { letter: LETTERS[side] })
        : t("Only this part is in the text of {{letter}} as it was written; attached.", { letter: LETTERS[side] }),
    );
    return true;
  };

  const attach = () => {
    const selected = selectedWords();
    if (selected === "across") setNote(t("Select words within one response."));
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
    if (!isAlone(event.nativeEvent) || event.target instanceof HTMLInputElement) return;
    const position = positionOf(event.nativeEvent);
    const answer = ANSWERS.find((one) => keymap.positionOf(numberKey(one.key)) === position)?.answer;
    const row = (event.target as HTMLElement).closest('[role="radiogroup"]') !== null;
    if (answer !== undefined) change(spot, { answer });
    else if (position === keymap.positionOf(numberKey(0)) || position === "Backspace") change(spot, { answer: null });
    else if (position === keymap.positionOf(PRINCIPLES.evidence)) attach();
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

  useKeys(keys && !disabled, [
    [PRINCIPLES.evidence, attach],
    [PRINCIPLES.principles, () => focus(active)],
  ]);

  const done = principles.filter((one) => one.answer !== null).length;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- keys of the controls within
    <section ref={panel} className="panel" aria-label={t("Principles")} onKeyDown={pressed}>
      <Text size="xs" fw={600} className="dim" mb={2}>
        {t("Principles, {{done}} of {{all}} answered", { done, all: spots.length })}
      </Text>
      {item.principles.map((principle) => (
        <div key={principle} className="principle" data-active={principle === spot.principle || undefined}>
          <Text size="sm" dir="auto" style={{ overflowWrap: "anywhere" }}>
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
                label={t("Words of {{letter}} that show it", { letter: LETTERS[spot.place] })}
                description={t("Select them in the response, or write them here. Enter attaches, Escape leaves.")}
                dir="auto"
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
                aria-keyshortcuts={keymap.label(PRINCIPLES.evidence)}
                onMouseDown={(event) => event.preventDefault()} // the selection stays
                onClick={attach}
                rightSection={<Key of={PRINCIPLES.evidence} />}
              >
                {t("Attach selected words")}
              </Button>
            ))}
        </div>
      ))}
      <Text size="xs" className="dim" role="status" mt={4}>
        {note ??
          t("Here: {{yes}} yes, {{partly}} partly, {{no}} no, {{none}} none; arrows move.", {
            yes: keymap.label(numberKey(1)),
            partly: keymap.label(numberKey(2)),
            no: keymap.label(numberKey(3)),
            none: keymap.label(numberKey(0)),
          })}
      </Text>
    </section>
  );
}
