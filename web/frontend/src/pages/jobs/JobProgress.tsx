import { Group, Progress, Stack, Text } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { count } from "../../format/count";
import { duration } from "../../format/duration";
import { t } from "../../i18n";
import { cost } from "../curate/shared/figures";

type Count = Schemas["JobCount"];

const SILENCE_S = 30; // nothing was counted for so long: it is said, for the time left is not to be trusted then

/** How far a job is, from what its run notes: a bar for each thing that is counted, the outermost first. */
export function JobProgress({ counts, going, now }: { counts: Count[]; going: boolean; now: number }) {
  const visible = counts.filter(({ total, ended }) => total !== null || !ended || !going);
  // Steps of a loop take seconds or hours: the pace is that of the innermost count alone.
  return (
    <Stack gap={6} my={6}>
      {visible.map((one, index) => (
        <Counted key={`${index} ${one.what}`} one={one} told={index === visible.length - 1 ? progressText(one, going, now) : ""} going={going} />
      ))}
    </Stack>
  );
}

function Counted({ one, told: text, going }: { one: Count; told: string; going: boolean }) {
  const share = one.total === null ? null : one.total === 0 ? 1 : Math.min(1, one.done / one.total);
  return (
    <div>
      <Group justify="space-between" gap="xs">
        <Text size="sm">
          {one.what}
          {(one.done > 0 || one.total !== null) && (
            <>
              {": "}
              <b>{count(one.done)}</b>
              {one.total !== null && t(" of {{total}}", { total: count(one.total) })} {one.unit}
            </>
          )}
        </Text>
        <Text size="xs" className="dim">
          {text}
        </Text>
      </Group>
      {share !== null && (
        <Progress
          size="sm"
          value={100 * share}
          color={going && !one.ended ? "blue" : "gray.5"}
          animated={going && !one.ended && share < 1}
          aria-label={t("{{what}}: {{done}} of {{total}} {{unit}}", { what: one.what, done: count(one.done), total: count(one.total), unit: one.unit })}
        />
      )}
    </div>
  );
}

function progressText(one: Count, going: boolean, now: number): string {
  const silent = now - one.at;
  const parts = [];
  if (one.ended || !going) {
    parts.push(one.total !== null && one.done >= one.total ? t("took {{at}}", { at: duration(one.at - one.began) }) : "");
    if (one.ended && going) parts.push(t("what comes next is not counted"));
  } else if (silent > SILENCE_S) {
    parts.push(t("nothing new for {{silent}}", { silent: duration(silent) }));
  } else {
    if (one.rate !== null && one.rate > 0) parts.push(rate(one.rate));
    if (one.seconds_left !== null) parts.push(t("about {{seconds_left}} left", { seconds_left: duration(one.seconds_left) }));
  }
  return parts.filter(Boolean).join(", ");
}

function rate(aSecond: number): string {
  if (aSecond >= 10) return t("{{round}} a second", { round: count(Math.round(aSecond)) });
  return aSecond >= 1 ? t("{{aSecond}} a second", { aSecond: aSecond.toFixed(1) }) : t("{{value}} a minute", { value: (60 * aSecond).toFixed(1) });
}

/** What calls of models have cost, of what was expected; nothing for a job that calls none. */
export function JobSpent({ spent, expected }: { spent: Schemas["RunSpending"] | null; expected: Schemas["ExpectedReply"] | null }) {
  if (spent === null) return null;
  const most = expected !== null && expected.cost !== null && expected.cost > 0 ? t(" of at most {{cost}} estimated", { cost: cost(expected.cost) }) : "";
  return (
    <Text size="sm">
      {spent.cost === null ? t("A judge has no prices: what it cost is not known") : <b>{cost(spent.cost)}</b>}
      {spent.cost !== null && ` ${t("spent")}${most}`}
      {expected?.budget != null && t(", budget {{budget}}", { budget: cost(expected.budget) })}
      {expected !== null && expected.spent > 0 && t(", {{spent}} before", { spent: cost(expected.spent) })}
      <Text span size="xs" className="dim">
        {` (${t("{{count}} calls", { count: spent.calls })}, ${t("{{count}} tokens", { count: spent.tokens })})`}
      </Text>
    </Text>
  );
}
