import { Table, Title } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { t } from "../../i18n";

type RunTable = Schemas["RunTable"];

/** Numbers stay whole; only longer texts are broken. */
function wrapping(cell: string) {
  return cell.length > 32 ? ({ minWidth: 200, overflowWrap: "anywhere" } as const) : ({ whiteSpace: "nowrap" } as const);
}

/** What a run measured, a table for each measure or set of prompts. */
export function RunTables({ tables }: { tables: RunTable[] }) {
  return tables.map((table) => (
    <section key={table.title} className="panel" aria-label={table.title} style={{ marginBottom: 12 }}>
      <Title order={2} mb={4}>
        {table.title}
      </Title>
      <Table.ScrollContainer minWidth={480} scrollAreaProps={{ viewportProps: { tabIndex: 0, role: "group", "aria-label": t("{{table}}, table", { table: table.title }) } }}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              {table.head.map((name) => (
                <Table.Th key={name} scope="col">
                  {name.replaceAll("_", " ")}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {table.rows.map((row, number) => (
              <Table.Tr key={number}>
                {row.map((cell, column) => (
                  <Table.Td key={table.head[column]} style={wrapping(cell)}>
                    {cell}
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </section>
  ));
}
