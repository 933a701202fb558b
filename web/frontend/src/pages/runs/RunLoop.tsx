import { Alert, Badge, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";

import { api, body, type Schemas } from "../../api/client";
import { Failure, Waiting } from "../../components/States";
import { instant } from "../../format/moment";
import { t } from "../../i18n";
import type { Curves } from "./curves";
import { LoopBudget } from "./LoopBudget";
import { LoopLabels } from "./LoopLabels";
import { LOOP, RunChart } from "./RunCurves";

type Loop = Schemas["OnlineLoopReply"];

/** An online loop: its budget and orders to it, what happened, its rewards beside its labels, what it asked. */
export function RunLoop({ id, curves }: { id: string; curves: Curves | undefined }) {
  const queries = useQueryClient();
  const { data, failureReason: error } = useQuery({
    queryKey: ["run", id, "loop"],
    queryFn: () => body(api.GET("/api/runs/{run_id}/loop", { params: { path: { run_id: id } } })),
    refetchInterval: ({ state: { data } }) => (data?.phase === "ended" ? false : 2000),
  });
  const ended = data?.phase === "ended";
  useEffect(() => {
    if (ended) void queries.invalidateQueries({ queryKey: ["run", id, "loop", "labels"] }); // the last ones
  }, [queries, id, ended]);
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  const charts = curves?.charts.filter((chart) => chart.section === LOOP) ?? [];
  return (
    <Stack gap="md">
      {error !== null && <Failure error={error} />}
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="sm">
        <LoopBudget id={id} loop={data} />
        <Events loop={data} />
      </SimpleGrid>
      <section aria-label={t("Rewards and labels")}>
        <Title order={2} mb={6}>{t("Rewards and labels")}</Title>
        {charts.length === 0 || curves === undefined ? (
          <Text size="sm" className="dim">
            {t("Nothing was measured yet: its first step is on its way.")}
          </Text>
        ) : (
          <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }} spacing="sm" verticalSpacing="sm">
            {charts.map((chart) => (
              <RunChart key={chart.title} chart={chart} curves={curves} together={`${id}/loop`} />
            ))}
          </SimpleGrid>
        )}
        {!data.gold && (
          <Alert color="gray" mt="sm" title={t("No gold reward")}>
            {t("This loop watches no reward that it is not trained on. training.watch in its file, as --watch of assay rl, names one: for example [verifier].")}
          </Alert>
        )}
        {!data.ensemble && (
          <Alert color="gray" mt="sm" title={t("No agreement of an ensemble")}>
            {t("The reward of this loop is one model. With reward.refit: heads it has members, whose agreement is measured.")}
          </Alert>
        )}
      </section>
      <LoopLabels id={id} running={!ended} />
    </Stack>
  );
}

function Events({ loop }: { loop: Loop }) {
  return (
    <section className="panel" aria-label={t("Events")}>
      <Title order={2} mb={4}>{t("Events")}</Title>
      {loop.events.length === 0 ? (
        <Text size="sm" className="dim">
          {t("Nothing happened yet. Fits of the reward, models that take over or do not, alarms, limits and orders are listed here.")}
        </Text>
      ) : (
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
        <div role="group" aria-label={t("Events, newest first")} tabIndex={0} style={{ maxHeight: 300, overflowY: "auto" }}>
          {loop.events.map((event, number) => (
            <div key={loop.events.length + loop.more_events - number} style={{ marginBottom: 6 }}>
              <Text size="xs" className="dim">
                {t("Step {{step}}, {{at}}", { step: event.step, at: instant(event.at) })}
              </Text>
              <Text size="sm" style={{ overflowWrap: "anywhere" }}>
                <Badge size="sm" radius="sm" variant="light" color={event.trouble ? "red" : "gray"} tt="none" mr={6}>
                  {event.kind}
                </Badge>
                {event.text}
              </Text>
            </div>
          ))}
          {loop.more_events > 0 && (
            <Text size="xs" className="dim">
              {t("{{more_events}} earlier ones are in events.jsonl of the run's folder.", { more_events: loop.more_events })}
            </Text>
          )}
        </div>
      )}
    </section>
  );
}
