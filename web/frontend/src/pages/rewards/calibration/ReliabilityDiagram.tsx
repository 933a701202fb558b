import { Table } from "@mantine/core";
import { ReferenceLine } from "recharts";

import type { Schemas } from "../../../api/client";
import { ChartFigure } from "../../../components/ChartFigure";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import { IntervalScatter } from "../charts/IntervalScatter";

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
              <Table.Th ta="right">{t("Stated")}</Table.Th>
              <Table.Th ta="right">{t("Observed")}</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
              <Table.Th ta="right">{t("Pairs")}</Table.Th>
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
      <IntervalScatter
        points={points}
        x={{ of: "predicted", label: t("stated probability"), domain: [0, 1], ticks: TICKS }}
        y={{ of: "observed", label: t("observed share"), domain: [0, 1], ticks: TICKS }}
        series={series}
        width={1.5}
        told={(point) => {
          const bin = point as Bin;
          return (
            <>
              {t("stated {{stated}}, observed {{observed}} ({{interval}})", {
                stated: figure(bin.predicted),
                observed: figure(bin.observed),
                interval: interval(bin.low, bin.high),
              })}
              <br />
              {t("{{count}} pairs", { count: bin.pairs })}
            </>
          );
        }}
      >
        <ReferenceLine segment={[{ x: 0, y: 0 }, { x: 1, y: 1 }]} stroke="var(--assay-dim)" strokeDasharray="4 3" />
      </IntervalScatter>
    </ChartFigure>
  );
}
