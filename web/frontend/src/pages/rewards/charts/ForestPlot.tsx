import { Table } from "@mantine/core";
import { CartesianGrid, ErrorBar, ReferenceLine, ResponsiveContainer, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from "recharts";

import { ChartFigure } from "../../../components/ChartFigure";
import { clipped } from "../../../format/clipped";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import { colourOf } from "./colours";
import { TOOLTIP } from "./tooltip";

const LONGEST = 22; // characters of a name beside the chart

export interface ForestRow {
  name: string;
  value: number;
  low: number | null;
  high: number | null;
}

/** Values one below the other, each with its 95 % interval. `reference`: a line to compare with, e.g. chance. */
export function ForestPlot({ title, rows, reference }: { title: string; rows: ForestRow[]; reference?: number }) {
  const points = rows.map((row, index) => ({
    ...row,
    place: rows.length - 1 - index,
    spread: [row.value - (row.low ?? row.value), (row.high ?? row.value) - row.value],
  }));
  const values = rows.flatMap((row) => [row.value, row.low ?? row.value, row.high ?? row.value]);
  if (reference !== undefined) values.push(reference);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5].find((one) => (high - low) / one <= 7) ?? (high - low) / 5;
  const [from, to] = [Math.floor(low / step - 0.2), Math.ceil(high / step + 0.2)];
  const ticks = Array.from({ length: to - from + 1 }, (_, at) => (from + at) * step);
  return (
    <ChartFigure
      title={title}
      height={48 + 30 * rows.length}
      table={
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Model")}</Table.Th>
              <Table.Th ta="right">{t("Value")}</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((row) => (
              <Table.Tr key={row.name}>
                <Table.Td>{row.name}</Table.Td>
                <Table.Td ta="right">{figure(row.value)}</Table.Td>
                <Table.Td ta="right">{interval(row.low, row.high)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      }
    >
      <ResponsiveContainer width="100%" height="100%">
        <ScatterChart margin={{ top: 4, right: 16, bottom: 4, left: 4 }} accessibilityLayer={false}>
          <CartesianGrid horizontal={false} />
          <XAxis
            type="number"
            dataKey="value"
            domain={[from * step, to * step]}
            ticks={ticks}
            tickFormatter={(value: number) => figure(value, step < 0.01 ? 3 : 2)}
          />
          <YAxis
            type="number"
            dataKey="place"
            domain={[-0.5, rows.length - 0.5]}
            ticks={points.map(({ place: index }) => index)}
            tickFormatter={(index: number) => clipped(rows[rows.length - 1 - index]?.name ?? "", LONGEST)}
            width={16 + 7 * Math.max(...rows.map(({ name }) => clipped(name, LONGEST).length))}
            interval={0}
          />
          {reference !== undefined && <ReferenceLine x={reference} stroke="var(--assay-dim)" strokeDasharray="4 3" />}
          <Tooltip
            {...TOOLTIP}
            content={({ payload }) => {
              const row = payload?.[0]?.payload as ForestRow | undefined;
              if (row === undefined) return null;
              return (
                <div className="panel" style={{ fontSize: 12 }}>
                  {row.name}: {figure(row.value)} ({interval(row.low, row.high)})
                </div>
              );
            }}
          />
          <Scatter data={points} fill={colourOf(0)} isAnimationActive={false}>
            <ErrorBar dataKey="spread" direction="x" width={8} strokeWidth={1.5} stroke={colourOf(0)} isAnimationActive={false} />
          </Scatter>
        </ScatterChart>
      </ResponsiveContainer>
    </ChartFigure>
  );
}
