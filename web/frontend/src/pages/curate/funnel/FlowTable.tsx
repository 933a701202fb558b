import { Table } from "@mantine/core";

import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { words } from "../shared/figures";
import type { Funnel } from "./useFunnel";

/** The chart's figures: every way from a source into a pool. */
export function FlowTable({ funnel }: { funnel: Funnel }) {
  return (
    <Table>
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Source</Table.Th>
          <Table.Th>Pool</Table.Th>
          <Table.Th>Rule</Table.Th>
          <Table.Th ta="right">Comparisons</Table.Th>
          <Table.Th ta="right">Of all</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {funnel.flows.map((flow) => (
          <Table.Tr key={`${flow.source} ${flow.pool} ${flow.rule}`}>
            <Table.Td>{flow.source}</Table.Td>
            <Table.Td>{flow.pool}</Table.Td>
            <Table.Td>{words(flow.rule)}</Table.Td>
            <Table.Td className="curate-number">{count(flow.comparisons)}</Table.Td>
            <Table.Td className="curate-number">{percent(flow.comparisons / funnel.comparisons)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
