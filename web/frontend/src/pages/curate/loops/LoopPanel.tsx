import { Anchor, Badge, Group, Stack, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { count, counted } from "../../../format/count";
import { momentInWords } from "../../../format/moment";
import { percent } from "../../../format/percent";
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
          begun {momentInWords(loop.created)}, {loop.wanted} iterations asked for
          {loop.spent > 0 && `, ${cost(loop.spent)} spent on calls`}
          {loop.last_run !== null && (
            <>
              {", "}
              <Anchor component={Link} to={`/runs/${loop.last_run}`} size="xs">
                last run
              </Anchor>
            </>
          )}
        </Text>
      </Group>
      <Stack gap="sm">
        {(loop.waiting ?? loop.stopped ?? loop.last_error) !== null && (
          <Text size="sm">
            {loop.waiting !== null ? `Waiting for people: ${loop.waiting}` : (loop.stopped ?? loop.last_error)}
            {loop.waiting !== null && (
              <>
                {". "}
                <Anchor component={Link} to="/annotate" size="sm">
                  Annotate
                </Anchor>
                {", then go on under "}
                <Anchor component={Link} to="/curate/stages" size="sm">
                  Stages
                </Anchor>
                .
              </>
            )}
          </Text>
        )}
        {loop.iterations.length > 0 && <IterationTable loop={loop} />}
        <AccuracyChart loop={loop} />
        {best !== undefined && (
          <Text size="sm" className="dim">
            Published: the model of iteration {best.iteration}
            {loop.model_name !== null && ` as ${loop.model_name}`}, trained on {counted(best.trained_on, "pair")}
            {best.left_out != null && best.left_out > 0 && ` (${count(best.left_out)} left out as too long)`}
            {best.gold_accuracy !== null &&
              `; right on ${percent(best.gold_accuracy.value)} of the ${count(best.gold_accuracy.pairs)} gold pairs at the end`}
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
          ? ["yellow", "waiting for people"]
          : loop.last_status === "failed"
            ? ["red", "failed"]
            : ["gray", "paused"];
  return (
    <Badge size="sm" variant="light" color={colour} radius="sm">
      {text}
    </Badge>
  );
}
