import { Anchor, Badge, Group, Stack, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { count } from "../../../format/count";
import { momentInWords } from "../../../format/moment";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";
import { cost } from "../shared/figures";
import { AccuracyChart } from "./AccuracyChart";
import { IterationTable } from "./IterationTable";

type Loop = Schemas["LoopHistory"];

/** One loop: where it is, what each iteration did, how its models do on gold. */
export function LoopPanel({ loop }: { loop: Loop }) {
  const best = loop.candidates.find((one) => one.best);
  return (
    <section className="panel" aria-labelledby={`loop-${loop.name}`}>
      <Group justify="space-between" gap="xs" mb={4}>
        <Group gap="xs">
          <Title order={2} id={`loop-${loop.name}`}>
            {loop.name}
          </Title>
          <LoopBadge loop={loop} />
        </Group>
        <Text size="xs" className="dim">
          {t("begun {{created}}, {{iterations}} asked for", {
            created: momentInWords(loop.created),
            iterations: t("{{count}} iterations", { count: loop.wanted }),
          })}
          {loop.spent > 0 && t(", {{spent}} spent on calls", { spent: cost(loop.spent) })}
          {loop.last_run !== null && (
            <>
              {", "}
              <Anchor component={Link} to={`/runs/${loop.last_run}`} size="xs">{t("last run")}</Anchor>
            </>
          )}
        </Text>
      </Group>
      <Stack gap="sm">
        {(loop.waiting ?? loop.stopped ?? loop.last_error) !== null && (
          <Text size="sm">
            {loop.waiting !== null ? t("Waiting for people: {{waiting}}", { waiting: loop.waiting }) : (loop.stopped ?? loop.last_error)}
            {loop.waiting !== null && (
              <>
                {". "}
                <Anchor component={Link} to="/annotate" size="sm">{t("Annotate")}</Anchor>
                {t(", then go on under ")}
                <Anchor component={Link} to="/curate/stages" size="sm">{t("Stages")}</Anchor>
                .
              </>
            )}
          </Text>
        )}
        {loop.iterations.length > 0 && <IterationTable loop={loop} />}
        <AccuracyChart loop={loop} />
        {best !== undefined && (
          <Text size="sm" className="dim">
            {t("Published: the model of iteration {{iteration}}", { iteration: best.iteration })}
            {loop.model_name !== null && t(" as {{model_name}}", { model_name: loop.model_name })}
            {t(", trained on {{pairs}}", { pairs: t("{{count}} pairs", { count: best.trained_on }) })}
            {best.left_out != null && best.left_out > 0 && t(" ({{left_out}} left out as too long)", { left_out: count(best.left_out) })}
            {best.gold_accuracy !== null &&
              t("; right on {{value}} of the {{pairs}} gold pairs at the end", { value: percent(best.gold_accuracy.value), pairs: count(best.gold_accuracy.pairs) })}
            .
          </Text>
        )}
      </Stack>
    </section>
  );
}

function LoopBadge({ loop }: { loop: Loop }) {
  const [colour, text] =
    loop.candidates.length > 0
      ? ["teal", "finished"]
      : loop.last_status === "running"
        ? ["blue", "running"]
        : loop.waiting !== null
          ? ["yellow", t("waiting for people")]
          : loop.last_status === "failed"
            ? ["red", "failed"]
            : ["gray", "paused"];
  return (
    <Badge size="sm" variant="light" color={colour} radius="sm">
      {text}
    </Badge>
  );
}
