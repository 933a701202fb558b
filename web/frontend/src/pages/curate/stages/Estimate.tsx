import { Alert, Stack, Table, Text } from "@mantine/core";
import { Trans } from "react-i18next";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { cost } from "../shared/figures";

type Found = Schemas["EstimateReply"];

/** Calls, tokens and price at most, judge by judge; what it asks of people. */
export function Estimate({ estimate }: { estimate: Found }) {
  const asks = estimate.judges.length > 0 || estimate.people > 0;
  const over = estimate.budget !== null && estimate.cost !== null && estimate.spent + estimate.cost > estimate.budget;
  return (
    <Stack gap="xs">
      <Text size="sm">
        <Trans
          i18nKey="It looks at <b>{{comparisons}}</b>"
          values={{ comparisons: t("{{count}} comparisons", { count: estimate.comparisons }) }}
          components={{ b: <b /> }}
        />
        {asks ? "." : t(" and asks nobody: it costs time alone.")}
      </Text>
      {estimate.people > 0 && (
        <Text size="sm">
          <Trans
            i18nKey={estimate.known ? "People will be asked about <b>{{comparisons}}</b>." : "People will be asked about at most <b>{{comparisons}}</b>."}
            values={{ comparisons: t("{{count}} comparisons", { count: estimate.people }) }}
            components={{ b: <b /> }}
          />
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
            {t("Retries are not counted")}
            {estimate.not_counted.length > 0 && t(", nor {{not_counted}}", { not_counted: estimate.not_counted.join("; ") })}.
          </Text>
        </>
      )}
      {(estimate.budget !== null || estimate.spent > 0) && (
        <Text size="sm">
          {t("{{spent}} spent so far", { spent: cost(estimate.spent) })}
          {estimate.budget !== null && t(" of a budget of {{budget}}", { budget: cost(estimate.budget) })}.
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
