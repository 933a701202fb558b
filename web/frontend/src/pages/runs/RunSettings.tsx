import { SimpleGrid, Table, Text, TextInput, Title } from "@mantine/core";
import { useState } from "react";

import type { Schemas } from "../../api/client";
import { t } from "../../i18n";

type Detail = Schemas["RunDetail"];
type Named = Schemas["NamedValue"];

/** What the run was told, and what it recorded at its end; both can be searched. */
export function RunSettings({ detail }: { detail: Detail }) {
  const [text, setText] = useState("");
  const query = text.trim().toLowerCase();
  const of = (values: Named[]) => values.filter((one) => query === "" || `${one.name} ${one.value}`.toLowerCase().includes(query));
  const about: Named[] = [
    { name: "run", value: detail.run.id },
    { name: "code", value: detail.code_version },
    { name: "process", value: detail.pid === null ? "" : t("{{pid}} on {{host}}", { pid: detail.pid, host: detail.host }) },
    { name: "folder", value: detail.folder },
  ];
  return (
    <>
      <TextInput label={t("Search")} w={260} mb="sm" value={text} onChange={(event) => setText(event.currentTarget.value)} />
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm">
        <Values title={t("Settings")} values={of(detail.config)} />
        <div>
          <Values title={t("Figures")} values={of(detail.figures)} empty={t("None yet: a run records its figures when it ends.")} />
          <Values title={t("Record")} values={of(about)} />
        </div>
      </SimpleGrid>
    </>
  );
}

function Values({ title, values, empty = t("None.") }: { title: string; values: Named[]; empty?: string }) {
  return (
    <section className="panel" aria-label={title} style={{ marginBottom: 12, minWidth: 0 }}>
      <Title order={2} mb={4}>
        {title}
      </Title>
      {values.length === 0 ? (
        <Text size="sm" className="dim">
          {empty}
        </Text>
      ) : (
        <Table layout="fixed">
          <Table.Tbody>
            {values.map((one) => (
              <Table.Tr key={one.name}>
                <Table.Th scope="row" fw={400} className="dim" style={{ overflowWrap: "anywhere", verticalAlign: "top" }}>
                  {one.name}
                </Table.Th>
                <Table.Td style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>{one.value}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </section>
  );
}
