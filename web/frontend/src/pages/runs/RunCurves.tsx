import { Group, Progress, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import { memo, useMemo } from "react";

import { formatNumber } from "../../components/chartData";
import { LiveChart } from "../../components/LiveChart";
import { Empty, Failure, Waiting } from "../../components/States";
import { t, textKey } from "../../i18n";
import { Command } from "../../components/Command";
import { chartText } from "./chartTexts";
import { placeOfStep, referenceOf, seriesOf, type Chart, type Curves } from "./curves";
import { axisLabel, CurveControls, useCurveView, type CurveView } from "./curveView";
import { goesOn, type RunRow } from "./format";

/** The section that has a tab of its own. */
export const LOOP = textKey("Online loop");
const PLAIN: CurveView = { smoothing: 1, axis: "step", logX: false, logY: false, zoom: null };

/** The curves of a run in sections, and its newest figures above them. */
export function RunCurves({ curves, run }: { curves: UseQueryResult<Curves>; run: RunRow }) {
  const { data } = curves;
  const { view, change, onZoom } = useCurveView();
  if (data === undefined) return curves.failureReason === null ? <Waiting what={t("Loading the curves")} /> : <Failure error={curves.failureReason} />;
  if (data.rows === 0)
    return goesOn(run.status) ? (
      <Empty title={t("Nothing was measured yet")}>{t("Its first step is on its way: the page shows it by itself.")}</Empty>
    ) : (
      <Empty title={t("This run has no curves")}>{t("It ended before its first step, or is of a kind that measures none.")}</Empty>
    );
  const sections = [...new Set(data.charts.map((chart) => chart.section))].filter((section) => section !== LOOP);
  return (
    <Stack gap="md">
      {curves.failureReason !== null && <Failure error={curves.failureReason} />}
      <Latest data={data} />
      <CurveControls view={view} change={change} />
      {view.axis !== "step" && placeOfStep(0, data, view.axis) === null && (
        <Empty title={view.axis === "tokens" ? t("This run does not say how many tokens it read") : t("This run does not say how long its steps took")}>
          {t("Its curves are drawn over steps.")}
        </Empty>
      )}
      {sections.map((section) => (
        <section key={section} aria-label={chartText(section)}>
          <Title order={2} mb={6}>
            {chartText(section)}
          </Title>
          <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }} spacing="sm" verticalSpacing="sm">
            {data.charts
              .filter((chart) => chart.section === section)
              .map((chart) => (
                <RunChart key={chart.title} chart={chart} curves={data} view={view} onZoom={onZoom} together={run.id} />
              ))}
          </SimpleGrid>
          {data.moments.some((one) => one.section === section) && (
            <Group gap={6} mt={6}>
              <Text size="sm">{t("Ask people about the responses that the two rewards disagree on:")}</Text>
              <Command line={`assay queue from-rollouts ${run.id}`} />
            </Group>
          )}
        </section>
      ))}
    </Stack>
  );
}

interface RunChartProps {
  chart: Chart;
  curves: Curves;
  together: string;
  view?: CurveView;
  onZoom?: (zoom: [number, number] | null) => void;
}

/** Drawn again when its numbers or the view change, not for each new function. */
export const RunChart = memo(
  function RunChart({ chart, curves, together, view = PLAIN, onZoom }: RunChartProps) {
    const { axis, smoothing } = view;
    const series = useMemo(() => seriesOf(chart, curves, smoothing, axis), [chart, curves, smoothing, axis]);
    const ofSteps = chart.x === "step";
    const moments = useMemo(
      () =>
        (ofSteps ? curves.moments.filter((one) => one.section === chart.section) : []).flatMap(({ step, text, ordinary }) => {
          const x = placeOfStep(step, curves, axis);
          return x === null ? [] : [{ x, step, text, ordinary }];
        }),
      [chart, curves, ofSteps, axis],
    );
    if (series.length === 0) return null;
    return (
      <LiveChart
        title={chartText(chart.title)}
        series={series}
        unit={chartText(chart.unit)}
        share={chart.share}
        note={chartText(chart.note)}
        xLabel={ofSteps ? axisLabel(axis) : chartText(chart.x_label)}
        reference={referenceOf(chart, curves)}
        moments={moments}
        dots={!ofSteps}
        view={ofSteps ? view : { logX: view.logX, logY: view.logY }}
        {...(ofSteps ? { together } : {})}
        {...(ofSteps && onZoom !== undefined ? { onZoom } : {})}
      />
    );
  },
  (before, after) => before.chart === after.chart && before.curves === after.curves && before.view === after.view && before.together === after.together,
);

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
          <Progress value={100 * data.progress} aria-label={t("Share of the planned steps")} flex={1} size="sm" />
          <Text size="xs" className="dim" miw={44}>
            {formatNumber(data.progress, true)}
          </Text>
        </Group>
      )}
      <Text size="xs" className="dim" role="status">
        {data.behind
          ? t("Reading the metrics: {{percent}} % of the file.", { percent: Math.round(100 * data.read) })
          : [
              t("{{count}} rows of metrics", { count: data.rows }),
              data.step.width > 1 ? t("{{count}} steps a point, the band is their range", { count: data.step.width }) : "",
              data.broken > 0 ? t("{{count}} more could not be read", { count: data.broken }) : "",
            ]
              .filter(Boolean)
              .join("; ") + "."}
      </Text>
    </Stack>
  );
}
