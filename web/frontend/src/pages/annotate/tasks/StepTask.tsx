import { Button, Group } from "@mantine/core";

import { Messages, ResponseTurns, type Turn } from "../../../components/Messages";
import { useQuestionTypes } from "../questionTypes";
import { t } from "../../../i18n";
import { optionKey, TASK } from "../keys/actions";
import { Key } from "../keys/Key";
import { useKeymap } from "../keys/keymap";
import { useKeys, type Binding } from "../keys/useKeys";
import { ResponseText } from "./ResponseText";
import { begun, wordsBetween, type TaskProps } from "./task";
import { TaskBar } from "./TaskBar";

interface StepValue {
  name: string;
  key: string;
  label: string;
  value: number;
}

/** Each turn of the assistant with what follows it, up to the next one. */
function byTurns(turns: Turn[]): Turn[][] {
  const groups: Turn[][] = [];
  for (const turn of turns) {
    if (turn.role === "assistant") groups.push([turn]);
    else groups.at(-1)?.push(turn);
  }
  return groups;
}

/** Each step after the other is correct, neutral or wrong; those after a wrong one may stay open. */
export function StepTask(props: TaskProps) {
  const { item, draft, change, onAnswer, disabled, keys } = props;
  const { data: types } = useQuestionTypes();
  const options = (types?.[item.question]?.words.values ?? []) as unknown as StepValue[];
  const places = item.settings.steps as unknown as [number, number][];
  const values = begun<number[]>(draft, []);
  const ready = values.length > 0 && (values.length === places.length || values.at(-1) === -1);
  const label = (value: number) => {
    if (values.length < places.length) change({ response: [...values, value] });
  };
  const store = () => onAnswer({ steps: values });
  const back = () => change({ response: values.slice(0, -1) });
  const keymap = useKeymap();
  useKeys(keys && !disabled, [
    ...options.map((option): Binding => [optionKey("step", option), () => label(option.value)]),
    [TASK.back, back],
    [TASK.store, () => ready && store()],
  ]);
  const stepTurns = item.settings.by_turns === true && item.turns[0] != null ? byTurns(item.turns[0]) : null;
  const where = t("Step {{number}} of {{all}}", { number: values.length + 1, all: places.length });
  const hint = values.length === places.length ? "" : ready ? t("{{where}}, or store: the rest builds on an error", { where }) : where;
  return (
    <>
      <ResponseText text={item.responses[0]!} turns={stepTurns === null ? item.turns[0] : null} plain={props.plain}>
        <ol className="session-steps">
          {places.map(([start, end], n) => (
            <li key={start} data-value={values[n]} aria-current={n === values.length ? "step" : undefined}>
              {stepTurns === null ? <Step words={wordsBetween(item.responses[0]!, start, end)} plain={props.plain} /> : <Messages turns={stepTurns[n] ?? []} plain={props.plain} />}
              {n < values.length && <strong>{t(options.find(({ value }) => value === values[n])?.label ?? "")}</strong>}
            </li>
          ))}
        </ol>
      </ResponseText>
      <TaskBar {...props} ready={ready} onStore={store} hint={hint}>
        <Group gap="xs">
          {options.map((option) => (
            <Button
              key={option.key}
              variant="light"
              color="gray"
              disabled={disabled || values.length === places.length}
              aria-keyshortcuts={keymap.label(optionKey("step", option))}
              onClick={() => label(option.value)}
              rightSection={<Key of={optionKey("step", option)} />}
            >
              {t(option.label)}
            </Button>
          ))}
          <Button variant="subtle" color="gray" disabled={disabled || values.length === 0} onClick={back} rightSection={<Key of={TASK.back} />}>
            {t("Back")}
          </Button>
        </Group>
      </TaskBar>
    </>
  );
}

/** A step as the texts are drawn; one that begins or ends within code as it is written. */
function Step({ words, plain }: { words: string; plain: boolean }) {
  const fences = words.match(/^ {0,3}(```|~~~)/gm)?.length ?? 0;
  return <ResponseTurns text={words} turns={null} plain={plain || fences % 2 === 1} />;
}
