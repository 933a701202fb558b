import { ScrollArea, Table } from "@mantine/core";

import { t } from "../i18n";
import { formatNumber, spread, type Aligned, type ChartSeries } from "./chartData";

const MOST = 200;

interface ChartTableProps {
  title: string;
  series: ChartSeries[];
  found: Aligned;
  share: boolean;
  xLabel: string;
}

/** The numbers of a chart, newest first; of many, some that are evenly spread. */
export function ChartTable({ title, series, found: points, share, xLabel }: ChartTableProps) {
  const xs = points.data[0] ?? [];
  return (
    <ScrollArea h={214} viewportProps={{ tabIndex: 0, role: "group", "aria-label": t("{{title}}, numbers", { title }) }}>
      <Table stickyHeader captionSide="bottom">
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col">{xLabel}</Table.Th>
            {series.map((one) => (
              <Table.Th key={one.name} scope="col">
                {one.name}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {spread(xs.length, MOST)
            .reverse()
            .map((index) => (
              <Table.Tr key={index}>
                <Table.Td>{formatNumber(xs[index])}</Table.Td>
                {series.map((one, number) => (
                  <Table.Td key={one.name}>{formatNumber(points.data[points.places[number]!.y]?.[index], share)}</Table.Td>
                ))}
              </Table.Tr>
            ))}
        </Table.Tbody>
        {xs.length > MOST && <Table.Caption>{t("{{most}} of {{xs}} points.", { most: MOST, xs: xs.length })}</Table.Caption>}
      </Table>
    </ScrollArea>
  );
}
