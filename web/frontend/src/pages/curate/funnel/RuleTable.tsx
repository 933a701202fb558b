import { Anchor, Table, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import { poolName } from "../../../components/PoolBadge";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";
import { words } from "../shared/figures";
import { dataOf, ruleAddress } from "./sankey";
import type { Rule } from "./useFunnel";

/** Pools and rules with counts and the reasons they give. */
export function RuleTable({ rules, comparisons }: { rules: Rule[]; comparisons: number }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("Pools and rules")}</Title>
      <Wide label={t("Pools and rules")}>
        <Table highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Pool")}</Table.Th>
              <Table.Th>{t("Rule")}</Table.Th>
              <Table.Th ta="right">{t("Comparisons")}</Table.Th>
              <Table.Th ta="right">{t("Of all")}</Table.Th>
              <Table.Th>{t("Reasons, for example")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rules.map((rule) => (
              <Table.Tr key={`${rule.pool} ${rule.rule}`}>
                <Table.Td>
                  <Anchor component={Link} to={dataOf("pool", rule.pool)} size="sm">
                    {poolName(rule.pool)}
                  </Anchor>
                </Table.Td>
                <Table.Td>
                  {rule.decided ? (
                    <Anchor component={Link} to={ruleAddress(rule.pool, rule.rule)} size="sm">
                      {words(rule.rule)}
                    </Anchor>
                  ) : (
                    words(rule.rule)
                  )}
                </Table.Td>
                <Table.Td className="curate-number">{count(rule.comparisons)}</Table.Td>
                <Table.Td className="curate-number">{percent(rule.comparisons / comparisons)}</Table.Td>
                <Table.Td maw={560}>
                  <Text size="xs" className="dim" lineClamp={2} style={{ whiteSpace: "normal", overflowWrap: "anywhere" }}>
                    {rule.decided ? rule.reasons.join("; ") : t("nobody has decided yet")}
                  </Text>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
    </div>
  );
}
