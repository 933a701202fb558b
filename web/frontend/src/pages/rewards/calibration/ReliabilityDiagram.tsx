import { Table } from "@mantine/core";
import { CartesianGrid, ErrorBar, ReferenceLine, ResponsiveContainer, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from "recharts";

import type { Schemas } from "../../../api/client";
import { ChartFigure } from "../../../components/ChartFigure";
import { count, counted } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { colourOf } from "../charts/colours";
import { TOOLTIP } from "../charts/tooltip";

type Bin = Schemas["ReliabilityBin"];

const TICKS = [0, 0.25, 0.5, 0.75, 1];

/** Stated probability against observed share; what is calibrated lies on the diagonal. */
export function ReliabilityDiagram({ title, bins, series }: { title: string; bins: Bin[]; series: number }) {
  const points = bins.map((bin) => ({ ...bin, spread: [bin.observed - bin.low, bin.high - bin.observed] }));
  return (
    <ChartFigure
      title={title}
      height={300}
      table={
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th ta="right">Stated</Table.Th>
              <Table.Th ta="right">Observed</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
              <Table.Th ta="right">Pairs</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {bins.map((bin) => (
              <Table.Tr key={bin.predicted}>
                <Table.Td ta="right">{figure(bin.predicted)}</Table.Td>
                <Table.Td ta="right">{figure(bin.observed)}</Table.Td>
                <Table.Td ta="right">{interval(bin.low, bin.high)}</Table.Td>
                <Table.Td ta="right">{count(bin.pairs)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      }
    >
      <ResponsiveContainer width="100%" height="100%">
        <ScatterChart margin={{ top: 8, right: 12, bottom: 18, left: 4 }} accessibilityLayer={false}>
          <CartesianGrid />
          <XAxis
            type="number"
            dataKey="predicted"
            domain={[0, 1]}
            ticks={TICKS}
            label={{ value: "stated probability", position: "insideBottom", offset: -10, fontSize: 12, fill: "var(--assay-dim)" }}
          />
          <YAxis
            type="number"
            dataKey="observed"
            domain={[0, 1]}
            ticks={TICKS}
            width={56}
            label={{ value: "observed share", angle: -90, position: "insideLeft", offset: 6, fontSize: 12, fill: "var(--assay-dim)", style: { textAnchor: "middle" } }}
          />
          <ReferenceLine segment={[{ x: 0, y: 0 }, { x: 1, y: 1 }]} stroke="var(--assay-dim)" strokeDasharray="4 3" />
          <Tooltip
            {...TOOLTIP}
            content={({ payload }) => {
              const bin = payload?.[0]?.payload as Bin | undefined;
              if (bin === undefined) return null;
              return (
                <div className="panel" style={{ fontSize: 12 }}>
                  stated {figure(bin.predicted)}, observed {figure(bin.observed)} ({interval(bin.low, bin.high)})
                  <br />
                  {counted(bin.pairs, "pair")}
                </div>
              );
            }}
          />
          <Scatter data={points} fill={colourOf(series)} line={{ stroke: colourOf(series), strokeWidth: 1.5 }} isAnimationActive={false}>
            <ErrorBar dataKey="spread" direction="y" width={6} stroke={colourOf(series)} isAnimationActive={false} />
          </Scatter>
        </ScatterChart>
      </ResponsiveContainer>
    </ChartFigure>
  );
}
