import { Table, Text, Title } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { t } from "../../../i18n";
import { ShareBar } from "../shared/ShareBar";
import { KindBadge } from "./KindBadge";

type Annotator = Schemas["AnnotatorFigures"];

/** How often what was shown first is preferred; nothing where nobody's order is known. */
export function BiasTable({ annotators }: { annotators: Annotator[] }) {
  const measured = annotators.filter((one) => one.first_shown.share !== null);
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("Position bias")}</Title>
      {measured.length === 0 ? (
        <Text size="sm" className="dim">
          {t("No preference has a known order of showing: neither sources nor reward models see one.")}
        </Text>
      ) : (
        <>
          <Wide label={t("Position bias")}>
            <Table highlightOnHover>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t("Who")}</Table.Th>
                  <Table.Th>{t("Kind")}</Table.Th>
                  <Table.Th>{t("Preferred what was shown first")}</Table.Th>
                  <Table.Th />
                  <Table.Th>{t("Same answer in both orders")}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {measured.map((one) => (
                  <Table.Tr key={`${one.kind} ${one.name}`}>
                    <Table.Th scope="row" fw={500}>
                      {one.name}
                    </Table.Th>
                    <Table.Td>
                      <KindBadge kind={one.kind} />
                    </Table.Td>
                    <Table.Td>
                      <ShareBar share={one.first_shown} reference={0.5} />
                    </Table.Td>
                    <Table.Td>{verdict(one)}</Table.Td>
                    <Table.Td>
                      <ShareBar share={one.consistent} />
                    </Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Wide>
          <Text size="xs" className="dim">
            {t("Without bias one half, the dashed line. A bias is said where the 95 % interval leaves it out.")}
          </Text>
        </>
      )}
    </div>
  );
}

function verdict({ first_shown: { low, high } }: Annotator): string {
  if (low === null || high === null) return "";
  if (low > 0.5) return t("prefers the first");
  if (high < 0.5) return t("prefers the second");
  return t("no bias seen");
}
