import { Button, Group, Text } from "@mantine/core";

import { t } from "../../../i18n";
import { letterKey, TASK } from "../keys/actions";
import { Key } from "../keys/Key";
import { useKeys, type Binding } from "../keys/useKeys";
import { ResponseText } from "./ResponseText";
import { begun, type TaskProps } from "./task";
import { TaskBar } from "./TaskBar";

const LETTERS = "ABCDEFGHI";

/** The best first: a letter puts its response next, `=` lets the next one share the last rank. */
interface Order {
  groups: number[][];
  tie: boolean;
}

export function RankingTask(props: TaskProps) {
  const { item, draft, change, onAnswer, disabled, keys } = props;
  const responses = item.responses;
  const { groups, tie } = begun<Order>(draft, { groups: [], tie: false });
  const ranked = groups.flat();
  const ready = ranked.length === responses.length;
  const put = (index: number) => {
    if (ranked.includes(index)) return;
    const joined = tie ? [...groups.slice(0, -1), [...groups.at(-1)!, index]] : [...groups, [index]];
    change({ response: { groups: joined, tie: false } });
  };
  const share = () => {
    if (groups.length > 0) change({ response: { groups, tie: !tie } });
  };
  const back = () => {
    const last = groups.at(-1) ?? [];
    change({ response: { groups: [...groups.slice(0, -1), last.slice(0, -1)].filter((group) => group.length > 0), tie: false } });
  };
  const store = () => onAnswer({ ranks: responses.map((_, index) => groups.findIndex((group) => group.includes(index)) + 1) });
  useKeys(keys && !disabled, [
    ...responses.map((_, index): Binding => [letterKey(index), () => put(index)]),
    [TASK.share, share],
    [TASK.back, back],
    [TASK.store, () => ready && store()],
  ]);
  const order = groups.map((group) => group.map((index) => LETTERS[index]).join(" = ")).join(" > ");
  return (
    <>
      <div className="session-list">
        {responses.map((text, index) => (
          <ResponseText key={index} letter={LETTERS[index]} text={text} turns={item.turns[index]} plain={props.plain} />
        ))}
      </div>
      <TaskBar {...props} ready={ready} onStore={store} hint={ready ? "" : t("Which is the next best?")}>
        <Text size="sm" mb={4} role="status" aria-label={t("Order")}>
          {order === "" ? t("Best first") : order}
          {tie && " = ?"}
        </Text>
        <Group gap="xs">
          {responses.map((_, index) => (
            <Button
              key={index}
              variant="light"
              color="gray"
              disabled={disabled || ranked.includes(index)}
              aria-label={t("{{letter}} is next", { letter: LETTERS[index] })}
              onClick={() => put(index)}
              rightSection={<Key of={letterKey(index)} />}
            >
              {LETTERS[index]}
            </Button>
          ))}
          <Button variant={tie ? "filled" : "subtle"} color="gray" disabled={disabled || groups.length === 0 || ready} aria-pressed={tie} onClick={share} rightSection={<Key of={TASK.share} />}>
            {t("As good as the last")}
          </Button>
          <Button variant="subtle" color="gray" disabled={disabled || groups.length === 0} onClick={back} rightSection={<Key of={TASK.back} />}>
            {t("Back")}
          </Button>
        </Group>
      </TaskBar>
    </>
  );
}
