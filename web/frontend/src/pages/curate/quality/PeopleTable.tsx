import { Table, Text, Title } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { ShareBar } from "../shared/ShareBar";

/** How people do in their queues; nothing where nobody has voted in one. */
export function PeopleTable({ annotators }: { annotators: Schemas["AnnotatorFigures"][] }) {
  const people = annotators.filter((one) => one.kind === "human" && (one.checks.of > 0 || one.agreement.of > 0 || one.flags.length > 0));
  if (people.length === 0) return null;
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("People in their queues")}</Title>
      <Wide label={t("People in their queues")}>
        <Table highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Who")}</Table.Th>
              <Table.Th>{t("Right on gold checks")}</Table.Th>
              <Table.Th>{t("As most of the others")}</Table.Th>
              <Table.Th ta="right">{t("Votes")}</Table.Th>
              <Table.Th>{t("Look at")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {people.map((one) => (
              <Table.Tr key={one.name}>
                <Table.Th scope="row" fw={500}>
                  {one.name}
                </Table.Th>
                <Table.Td>
                  <ShareBar share={one.checks} />
                </Table.Td>
                <Table.Td>
                  <ShareBar share={one.agreement} />
                </Table.Td>
                <Table.Td className="curate-number">{count(one.opinions)}</Table.Td>
                <Table.Td maw={340} style={{ whiteSpace: "normal" }}>
                  <Text size="xs">{one.flags.join("; ")}</Text>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {t("What to look at is a reason to talk to somebody, not a verdict: no vote is dropped for it.")}
      </Text>
    </div>
  );
}
