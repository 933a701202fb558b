import { Group, Progress, SegmentedControl, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { memo, useMemo } from "react";
import { useSearchParams } from "react-router";

import { formatNumber } from "../../components/chartData";
import { LiveChart } from "../../components/LiveChart";
import { Empty, Failure, Waiting } from "../../components/States";
import { count } from "../../format/count";
import { Command } from "./Command";
import { referenceOf, seriesOf, type Chart, type Curves } from "./curves";
import { goesOn, type RunRow } from "./format";

/** The section that has a tab of its own. */
export const LOOP = "Online loop";
/** Points whose mean is drawn. */
const SMOOTHINGS = [1, 5, 20, 100];

/** The curves of a run in sections, and its newest figures above them. */
export function RunCurves({ curves, run }: { curves: UseQueryResult<Curves>; run: RunRow }) {
  const { data } = curves;
  const [address, setAddress] = useSearchParams();
  const smoothing = SMOOTHINGS.find((one) => String(one) === address.get("smoothing")) ?? 1;
  if (data === undefined) return curves.failureReason === null ? <Waiting what="Loading the curves" /> : <Failure error={curves.failureReason} />;
  if (data.rows === 0)
    return goesOn(run.status) ? (
      <Empty title="Nothing was measured yet">Its first step is on its way: the page shows it by itself.</Empty>
    ) : (
      <Empty title="This run has no curves">It ended before its first step, or is of a kind that measures none.</Empty>
    );
  const sections = [...new Set(data.charts.map((chart) => chart.section))].filter((section) => section !== LOOP);
  return (
    <Stack gap="md">
      {curves.failureReason !== null && <Failure error={curves.failureReason} />}
      <Latest data={data} />
      <Group gap="xs">
        <Text size="sm" id="smoothing">
          Smoothing
        </Text>
        <SegmentedControl
          aria-labelledby="smoothing"
          value={String(smoothing)}
          onChange={(value) => setAddress(value === "1" ? {} : { smoothing: value }, { replace: true })}
          data={SMOOTHINGS.map((one) => ({ value: String(one), label: one === 1 ? "none" : `${one} points` }))}
        />
      </Group>
      {sections.map((section) => (
        <section key={section} aria-label={section}>
          <Title order={2} mb={6}>
            {section}
          </Title>
          <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }} spacing="sm" verticalSpacing="sm">
            {data.charts
              .filter((chart) => chart.section === section)
              .map((chart) => (
                <RunChart key={chart.title} chart={chart} curves={data} smoothing={smoothing} together={run.id} />
              ))}
          </SimpleGrid>
          {data.moments.some((one) => one.section === section) && (
            <Group gap={6} mt={6}>
              <Text size="sm">Ask people about the responses that the two rewards disagree on:</Text>
              <Command line={`assay queue from-rollouts ${run.id}`} />
            </Group>
          )}
        </section>
      ))}
    </Stack>
  );
}

export const RunChart = memo(function RunChart({ chart, curves, smoothing, together }: { chart: Chart; curves: Curves; smoothing: number; together: string }) {
  const series = useMemo(() => seriesOf(chart, curves, smoothing), [chart, curves, smoothing]);
  const moments = chart.x === "step" ? curves.moments.filter((one) => one.section === chart.section) : [];
  if (series.length === 0) return null;
  return (
    <LiveChart
      title={chart.title}
      series={series}
      unit={chart.unit}
      share={chart.share}
      note={chart.note}
      xLabel={chart.x_label}
      reference={referenceOf(chart, curves)}
      moments={moments.map((one) => ({ x: one.step, text: one.text, ordinary: one.ordinary }))}
      dots={chart.x !== "step"}
      {...(chart.x === "step" ? { together } : {})}
    />
  );
});

function Latest({ data }: { data: Curves }) {
  return (
    <Stack gap={6}>
      <Group gap="4px 24px">
        {data.latest.map((one) => (
          <div key={one.label}>
            <Text size="xs" className="dim">
              {one.label}
            </Text>
            <Text fw={600}>{formatNumber(one.value, one.share)}</Text>
          </div>
        ))}
      </Group>
      {data.running && data.progress !== null && (
        <Group gap="xs" wrap="nowrap">
          <Progress value={100 * data.progress} aria-label="Share of the planned steps" flex={1} size="sm" />
          <Text size="xs" className="dim" miw={44}>
            {formatNumber(data.progress, true)}
          </Text>
        </Group>
      )}
      <Text size="xs" className="dim" role="status">
        {data.behind
          ? `Reading the metrics: ${Math.round(100 * data.read)} % of the file.`
          : [
              `${count(data.rows)} lines of metrics.jsonl`,
              data.step.width > 1 ? `${data.step.width} steps a point, the band is their range` : "",
              data.broken > 0 ? `${data.broken} more could not be read` : "",
            ]
              .filter(Boolean)
              .join("; ") + "."}
      </Text>
    </Stack>
  );
}
