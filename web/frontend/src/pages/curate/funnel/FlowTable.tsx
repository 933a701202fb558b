import { Table } from "@mantine/core";

import { poolName } from "../../../components/PoolBadge";
import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";
import { words } from "../shared/figures";
import type { Funnel } from "./useFunnel";

/** The chart's figures: every way from a source into a pool. */
export function FlowTable({ funnel }: { funnel: Funnel }) {
  return (
    <Table>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>{t("Source")}</Table.Th>
          <Table.Th>{t("Pool")}</Table.Th>
          <Table.Th>{t("Rule")}</Table.Th>
          <Table.Th ta="right">{t("Comparisons")}</Table.Th>
          <Table.Th ta="right">{t("Of all")}</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {funnel.flows.map((flow) => (
          <Table.Tr key={`${flow.source} ${flow.pool} ${flow.rule}`}>
            <Table.Td>{flow.source}</Table.Td>
            <Table.Td>{poolName(flow.pool)}</Table.Td>
            <Table.Td>{words(flow.rule)}</Table.Td>
            <Table.Td className="curate-number">{count(flow.comparisons)}</Table.Td>
            <Table.Td className="curate-number">{percent(flow.comparisons / funnel.comparisons)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
