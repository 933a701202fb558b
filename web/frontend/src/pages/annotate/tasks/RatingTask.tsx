import { Group, SegmentedControl, Text } from "@mantine/core";

import { useKeys } from "../useKeys";
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
  useKeys(keys && !disabled, (key) => {
    if (key === "Enter" && open === undefined) store();
    else if (key === "z") {
      const answered = scales.filter(({ aspect }) => aspect in ratings).map(({ aspect }) => aspect);
      change({ response: Object.fromEntries(answered.slice(0, -1).map((aspect) => [aspect, ratings[aspect]])) });
    } else if (open === undefined) return false;
    else if (key === "-") rate(open.aspect, null);
    else if (/^\d$/.test(key) && open.low <= Number(key) && Number(key) <= open.high) rate(open.aspect, Number(key));
    else return false;
    return true;
  });
  return (
    <>
      <ResponseText text={item.responses[0]!} turns={item.turns[0]} plain={props.plain} />
      <TaskBar {...props} ready={open === undefined} onStore={store} hint={open === undefined ? "" : `Next: ${open.aspect}`}>
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
                { value: UNKNOWN, label: "cannot say" },
              ]}
            />
          </Group>
        ))}
      </TaskBar>
    </>
  );
}
