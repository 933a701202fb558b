import { Group, SegmentedControl, Text } from "@mantine/core";

import { t } from "../../../i18n";
import { numberKey, TASK } from "../keys/actions";
import { useKeys, type Binding } from "../keys/useKeys";
import { ResponseText } from "./ResponseText";
import { begun, type TaskProps } from "./task";
import { TaskBar } from "./TaskBar";

interface Scale {
  aspect: string;
  low: number;
  high: number;
}
type Ratings = Record<string, number | null>;

const UNKNOWN = "unknown";

/** A number on each scale; digits answer the first that is open. */
export function RatingTask(props: TaskProps) {
  const { item, draft, change, onAnswer, disabled, keys } = props;
  const scales = item.settings.scales as unknown as Scale[];
  const ratings = begun<Ratings>(draft, {});
  const open = scales.find(({ aspect }) => !(aspect in ratings));
  const rate = (aspect: string, value: number | null) => change({ response: { ...ratings, [aspect]: value } });
  const store = () => onAnswer({ ratings });
  const back = () => {
    const answered = scales.filter(({ aspect }) => aspect in ratings).map(({ aspect }) => aspect);
    change({ response: Object.fromEntries(answered.slice(0, -1).map((aspect) => [aspect, ratings[aspect]])) });
  };
  const digits = open === undefined ? [] : Array.from({ length: 10 }, (_, digit) => digit).filter((digit) => open.low <= digit && digit <= open.high);
  useKeys(keys && !disabled, [
    ...digits.map((digit): Binding => [numberKey(digit), () => rate(open!.aspect, digit)]),
    [TASK.unknown, () => open !== undefined && rate(open.aspect, null)],
    [TASK.back, back],
    [TASK.store, () => open === undefined && store()],
  ]);
  return (
    <>
      <ResponseText text={item.responses[0]!} turns={item.turns[0]} plain={props.plain} />
      <TaskBar {...props} ready={open === undefined} onStore={store} hint={open === undefined ? "" : t("Next: {{aspect}}", { aspect: open.aspect })}>
        {scales.map(({ aspect, low, high }) => (
          <Group key={aspect} gap="2px 10px" mb={4}>
            <Text size="sm" w={140} fw={open?.aspect === aspect ? 700 : 400} style={{ overflowWrap: "anywhere" }}>
              {aspect}
            </Text>
            <SegmentedControl
              aria-label={aspect}
              disabled={disabled}
              value={aspect in ratings ? String(ratings[aspect] ?? UNKNOWN) : ""}
              onChange={(value) => rate(aspect, value === UNKNOWN ? null : Number(value))}
              data={[
                ...Array.from({ length: high - low + 1 }, (_, n) => ({ value: String(low + n), label: String(low + n) })),
                { value: UNKNOWN, label: t("cannot say") },
              ]}
            />
          </Group>
        ))}
      </TaskBar>
    </>
  );
}
