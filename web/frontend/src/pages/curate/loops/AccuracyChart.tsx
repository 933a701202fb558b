import { Table } from "@mantine/core";
import { CartesianGrid, ErrorBar, ReferenceLine, ResponsiveContainer, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from "recharts";

import type { Schemas } from "../../../api/client";
import { ChartFigure } from "../../../components/ChartFigure";
import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";

type Loop = Schemas["LoopHistory"];

const COLOUR = "light-dark(#0b7285, #3bc9db)";

/** Accuracy of each iteration's model on the gold there was then, with its interval; nothing before a model is trained. */
export function AccuracyChart({ loop }: { loop: Loop }) {
  const points = loop.iterations.flatMap(({ iteration, gold_accuracy, trained_on }) =>
    gold_accuracy === null
      ? []
      : [{ iteration, trained_on, ...gold_accuracy, spread: [gold_accuracy.value - gold_accuracy.low, gold_accuracy.high - gold_accuracy.value] }],
  );
  if (points.length === 0) return null;
  return (
    <ChartFigure
      title={t("Accuracy of the models of {{name}} on gold, 95 % intervals; gold grows with the iterations", { name: loop.name })}
      table={
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Iteration")}</Table.Th>
              <Table.Th>{t("Trained on")}</Table.Th>
              <Table.Th>{t("Right")}</Table.Th>
              <Table.Th>95 %</Table.Th>
              <Table.Th>{t("Gold pairs")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {points.map((point) => (
              <Table.Tr key={point.iteration}>
                <Table.Td>{point.iteration}</Table.Td>
                <Table.Td>{count(point.trained_on)}</Table.Td>
                <Table.Td>{percent(point.value)}</Table.Td>
                <Table.Td>
                  {t("{{low}} to {{high}}", { low: percent(point.low), high: percent(point.high) })}
                </Table.Td>
                <Table.Td>{count(point.pairs)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      }
    >
      <div className="curate-chart" style={{ height: 180 }} role="img" aria-label={points.map((p) => t("iteration {{iteration}}: {{value}}", { iteration: p.iteration, value: percent(p.value) })).join(", ")}>
        <ResponsiveContainer width="100%" height="100%">
          <ScatterChart margin={{ top: 8, right: 16, bottom: 4, left: 0 }} accessibilityLayer={false}>
            <CartesianGrid vertical={false} stroke="var(--assay-border)" />
            <XAxis type="number" dataKey="iteration" name={t("Iteration")} domain={["dataMin - 0.5", "dataMax + 0.5"]} ticks={points.map(({ iteration }) => iteration)} />
            <YAxis type="number" dataKey="value" domain={[0, 1]} ticks={[0, 0.25, 0.5, 0.75, 1]} tickFormatter={(value: number) => percent(value, 0)} width={52} />
            <ReferenceLine y={0.5} stroke="var(--assay-dim)" strokeDasharray="4 3" />
            <Tooltip isAnimationActive={false} content={({ payload }) => <Point point={payload?.[0]?.payload as (typeof points)[number] | undefined} />} />
            <Scatter data={points} fill={COLOUR} isAnimationActive={false}>
              <ErrorBar dataKey="spread" direction="y" width={8} strokeWidth={1.5} stroke={COLOUR} isAnimationActive={false} />
            </Scatter>
          </ScatterChart>
        </ResponsiveContainer>
      </div>
    </ChartFigure>
  );
}

function Point({ point }: { point: { iteration: number; value: number; low: number; high: number; pairs: number } | undefined }) {
  if (point === undefined) return null;
  return (
    <div className="panel" style={{ fontSize: 12 }}>
      {t("Iteration {{iteration}}: {{value}} ({{low}} to {{high}}) of {{pairs}}", { iteration: point.iteration, value: percent(point.value), low: percent(point.low), high: percent(point.high), pairs: count(point.pairs) })}
    </div>
  );
}
