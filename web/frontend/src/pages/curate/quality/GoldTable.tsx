import { Table, Text, Title } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { duration } from "../../../format/duration";
import { NONE } from "../../../format/none";
import { t } from "../../../i18n";
import { cost } from "../shared/figures";
import { ShareBar } from "../shared/ShareBar";
import { KindBadge } from "./KindBadge";

type Annotator = Schemas["AnnotatorFigures"];

/** How often each is right, on gold and on gold checks, and what a judge takes. */
export function GoldTable({ annotators }: { annotators: Annotator[] }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("Against gold")}</Title>
      <Wide label={t("Against gold")}>
        <Table highlightOnHover horizontalSpacing={6}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Who")}</Table.Th>
              <Table.Th>{t("Kind")}</Table.Th>
              <Table.Th>{t("Right on gold")}</Table.Th>
              <Table.Th ta="right">{t("Opinions")}</Table.Th>
              <Table.Th ta="right">{t("Ties")}</Table.Th>
              <Table.Th ta="right">{t("Skips")}</Table.Th>
              <Table.Th ta="right">{t("Time")}</Table.Th>
              <Table.Th ta="right">{t("Cost")}</Table.Th>
              <Table.Th>{t("No answer")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {annotators.map((one) => (
              <Table.Tr key={`${one.kind} ${one.name}`}>
                <Table.Th scope="row" fw={500} maw={200} style={{ whiteSpace: "normal", overflowWrap: "anywhere" }}>
                  {one.name}
                </Table.Th>
                <Table.Td>
                  <KindBadge kind={one.kind} />
                </Table.Td>
                <Table.Td>
                  <ShareBar share={one.gold} />
                </Table.Td>
                <Table.Td className="curate-number">{count(one.opinions)}</Table.Td>
                <Table.Td className="curate-number">{count(one.ties)}</Table.Td>
                <Table.Td className="curate-number">{count(one.skips)}</Table.Td>
                <Table.Td className="curate-number">{duration(one.seconds)}</Table.Td>
                <Table.Td className="curate-number">{one.calls === 0 ? NONE : one.cost === null ? t("no prices") : cost(one.cost)}</Table.Td>
                <Table.Td maw={300} miw={90} style={{ whiteSpace: "normal" }}>
                  <Text size="xs">{one.failures.map((f) => `${count(f.attempts)} ${f.outcome.replaceAll("_", " ")}`).join(", ")}</Text>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {t("Right on gold: of comparisons where both prefer a side, with a 95 % interval. What an annotator's own votes made gold is not counted for it. Time: median of an answer. No answer: attempts at a language model that failed.")}
      </Text>
    </div>
  );
}
