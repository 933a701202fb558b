import { Alert, Stack, Table, Text } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { Wide } from "../../components/Wide";
import { count } from "../../format/count";
import { t } from "../../i18n";
import { cost } from "../curate/shared/figures";

type Found = Schemas["EstimateReply"];

/** Calls, tokens and price at most, judge by judge; what it asks of people. */
export function Estimate({ estimate }: { estimate: Found }) {
  const asks = estimate.judges.length > 0 || estimate.people > 0;
  const over = estimate.budget !== null && estimate.cost !== null && estimate.spent + estimate.cost > estimate.budget;
  return (
    <Stack gap="xs">
      <Text size="sm">
        {estimate.comparisons !== null && `${t("It looks at {{count}} comparisons", { count: estimate.comparisons })}. `}
        {estimate.steps !== null && `${t("{{count}} steps", { count: estimate.steps })}. `}
        {!asks && t("It asks nobody: it costs time alone.")}
      </Text>
      {estimate.people > 0 && (
        <Text size="sm">
          {estimate.known
            ? t("People will be asked about {{count}} comparisons.", { count: estimate.people })
            : t("People will be asked about at most {{count}} comparisons.", { count: estimate.people })}
        </Text>
      )}
      {estimate.judges.length > 0 && (
        <>
          <Wide label={t("What judges would be asked")}>
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t("Judge")}</Table.Th>
                  <Table.Th ta="right">{t("Questions")}</Table.Th>
                  <Table.Th ta="right">{t("Calls")}</Table.Th>
                  <Table.Th ta="right">{t("Tokens")}</Table.Th>
                  <Table.Th ta="right">{t("Cost")}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {estimate.judges.map((judge, index) => (
                  <Table.Tr key={index}>
                    <Table.Th scope="row" fw={500}>
                      {judge.judge}{" "}
                      <Text span size="xs" className="dim">
                        {judge.kind.replaceAll("_", " ")}
                      </Text>
                    </Table.Th>
                    <Table.Td className="curate-number">{count(judge.questions)}</Table.Td>
                    <Table.Td className="curate-number">{count(judge.calls)}</Table.Td>
                    <Table.Td className="curate-number">{count(judge.tokens)}</Table.Td>
                    <Table.Td className="curate-number">{cost(judge.cost)}</Table.Td>
                  </Table.Tr>
                ))}
                <Table.Tr fw={600}>
                  <Table.Th scope="row">{t("In all")}</Table.Th>
                  <Table.Td />
                  <Table.Td className="curate-number">{count(estimate.calls)}</Table.Td>
                  <Table.Td className="curate-number">{count(estimate.tokens)}</Table.Td>
                  <Table.Td className="curate-number">{cost(estimate.cost)}</Table.Td>
                </Table.Tr>
              </Table.Tbody>
            </Table>
          </Wide>
          <Text size="xs" className="dim">
            {estimate.known
              ? t("Of the questions that are known; tokens as earlier calls of the model show, or as is typical where there are none.")
              : t("At most: what later iterations ask is bounded by the settings, and its length taken from a sample of the pool.")}{" "}
            {t("Retries are not counted.")}
            {estimate.not_counted.length > 0 && ` ${t("Neither are")}: ${estimate.not_counted.join("; ")}.`}
          </Text>
        </>
      )}
      {(estimate.budget !== null || estimate.spent > 0) && (
        <Text size="sm">
          {estimate.budget !== null
            ? t("{{spent}} spent so far of a budget of {{budget}}.", { spent: cost(estimate.spent), budget: cost(estimate.budget) })
            : t("{{spent}} spent so far.", { spent: cost(estimate.spent) })}
        </Text>
      )}
      {over && (
        <Alert color="yellow" py={6}>
          {t("The budget may stop it before its end; it goes on from there once the budget is raised.")}
        </Alert>
      )}
    </Stack>
  );
}
