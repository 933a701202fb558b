import { Button, Table, Text, Title } from "@mantine/core";
import { useState } from "react";

import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import type { Result } from "./results";

/** How right each model is by the publisher's subsets, from its stored items. */
export function SubsetTable({ results, names }: { results: Result[]; names: string[] }) {
  const [open, setOpen] = useState(false);
  const keys = [...new Set(results.flatMap((result) => result.subsets.map(({ part, subset }) => `${part}\n${subset}`)))];
  if (keys.length === 0) return null;
  return (
    <div>
      <Title order={3} mb={4}>{t("Items by subset")}</Title>
      <Button variant="default" size="compact-xs" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? t("Hide") : t("Show")} {t("{{count}} subsets", { count: keys.length })}
      </Button>
      {open && (
        <div style={{ marginTop: 6 }}>
        <Wide label={t("Items by subset")}>
          <Table withTableBorder>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t("Part")}</Table.Th>
                <Table.Th>{t("Subset")}</Table.Th>
                <Table.Th ta="right">{t("Items")}</Table.Th>
                {names.map((name) => (
                  <Table.Th key={name} ta="right">
                    {name}
                  </Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {keys.map((key) => {
                const subsets = results.map((result) => result.subsets.find(({ part, subset }) => `${part}\n${subset}` === key));
                const first = subsets.find((one) => one !== undefined)!;
                return (
                  <Table.Tr key={key}>
                    <Table.Td>{first.part}</Table.Td>
                    <Table.Td>{first.subset}</Table.Td>
                    <Table.Td ta="right">{count(first.items)}</Table.Td>
                    {subsets.map((one, index) => (
                      <Table.Td key={index} ta="right" className="rewards-number">
                        {figure(one?.credit)}{" "}
                        <Text span size="xs" className="dim">
                          {one?.low == null ? "" : interval(one.low, one.high)}
                          {one !== undefined && one.failed > 0 ? t(", {{failed}} failed", { failed: count(one.failed) }) : ""}
                        </Text>
                      </Table.Td>
                    ))}
                  </Table.Tr>
                );
              })}
            </Table.Tbody>
          </Table>
        </Wide>
          <Text size="xs" className="dim" mt={4}>
            {t("Mean credit of an item, 0 to 1, failed items left out. Intervals: Wilson where every item has a prompt of its own and is right or wrong, else the bootstrap over prompts; none where all items agree.")}
          </Text>
        </div>
      )}
    </div>
  );
}
