import { Alert, Button, CloseButton, Group, TextInput } from "@mantine/core";
import { useRef, useState } from "react";

import { t } from "../../../i18n";
import { numberKey, TASK } from "../keys/actions";
import { Key } from "../keys/Key";
import { useKeys, type Binding } from "../keys/useKeys";
import { ResponseText } from "./ResponseText";
import { begun, codePoints, wordsBetween, type TaskProps } from "./task";
import { TaskBar } from "./TaskBar";

interface Span {
  start: number;
  end: number;
  label: string;
}

/** Words are selected in the response, or typed as they stand there, and get a label. */
export function SpanTask(props: TaskProps) {
  const { item, draft, change, onAnswer, disabled, keys } = props;
  const text = item.responses[0]!;
  const labels = item.settings.labels as unknown as string[];
  const spans = begun<Span[]>(draft, []);
  const shown = useRef<HTMLDivElement>(null);
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const mark = (label: string) => {
    const place = typed === "" ? selected(shown.current) : placed(text, typed, spans);
    if (place === null) {
      setProblem(typed === "" ? t("Select the words in the response first, or type them below.") : t("These words are not in the response."));
      return;
    }
    setProblem(null);
    setTyped("");
    window.getSelection()?.removeAllRanges();
    change({ response: [...spans, { ...place, label }] });
  };
  const store = () => onAnswer({ spans });
  useKeys(keys && !disabled, [
    ...labels.slice(0, 9).map((label, n): Binding => [numberKey(n + 1), () => mark(label)]),
    [TASK.back, () => change({ response: spans.slice(0, -1) })],
    [TASK.store, store],
  ]);
  return (
    <>
      <ResponseText text={text} turns={item.turns[0]} plain={props.plain}>
        <div ref={shown} dir="auto" className="session-plain session-spans">
          {pieces(text, spans).map(({ words, marked }, n) => (marked ? <mark key={n}>{words}</mark> : words))}
        </div>
      </ResponseText>
      <TaskBar {...props} ready onStore={store} hint={spans.length === 0 ? t("Nothing marked: storing says that there is nothing to mark") : ""}>
        {problem !== null && (
          <Alert color="yellow" p="xs" mb="xs" role="alert">
            {problem}
          </Alert>
        )}
        <Group gap="xs" align="end">
          <TextInput
            label={t("Words, as they are written")}
            placeholder={t("or select them in the response")}
            dir="auto"
            value={typed}
            disabled={disabled}
            onChange={(event) => setTyped(event.currentTarget.value)}
          />
          {labels.map((label, n) => (
            <Button key={label} variant="light" color="gray" disabled={disabled} onClick={() => mark(label)} rightSection={n < 9 && <Key of={numberKey(n + 1)} />}>
              {label}
            </Button>
          ))}
        </Group>
        <ul className="session-marked" aria-label={t("Marked")}>
          {spans.map(({ start, end, label }, n) => (
            <li key={`${start} ${end} ${label}`}>
              <strong>{label}</strong>: <q dir="auto">{wordsBetween(text, start, end)}</q>{" "}
              <CloseButton
                size="xs"
                display="inline-flex"
                disabled={disabled}
                aria-label={t("Remove {{label}}: {{words}}", { label, words: wordsBetween(text, start, end) })}
                onClick={() => change({ response: spans.filter((_, other) => other !== n) })}
              />
            </li>
          ))}
        </ul>
      </TaskBar>
    </>
  );
}

/** The text in pieces, those under any span marked. */
function pieces(text: string, spans: Span[]): { words: string; marked: boolean }[] {
  const characters = [...text];
  const ends = [...new Set([0, characters.length, ...spans.flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
  return ends.slice(1).map((end, n) => {
    const start = ends[n]!;
    return { words: characters.slice(start, end).join(""), marked: spans.some((span) => span.start <= start && end <= span.end) };
  });
}

/** What is selected inside the element, in the server's characters. */
function selected(element: HTMLElement | null): { start: number; end: number } | null {
  const selection = window.getSelection();
  if (element === null || selection === null || selection.isCollapsed || selection.rangeCount === 0) return null;
  const range = selection.getRangeAt(0);
  if (!element.contains(range.startContainer) || !element.contains(range.endContainer)) return null;
  const before = range.cloneRange();
  before.selectNodeContents(element);
  before.setEnd(range.startContainer, range.startOffset);
  const start = codePoints(before.toString());
  const end = start + codePoints(range.toString());
  return start < end ? { start, end } : null;
}

/** Where typed words stand: the first place that is not marked yet. */
function placed(text: string, words: string, spans: Span[]): { start: number; end: number } | null {
  for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + 1)) {
    const start = codePoints(text.slice(0, at));
    const end = start + codePoints(words);
    if (!spans.some((span) => span.start === start && span.end === end)) return { start, end };
  }
  return null;
}
