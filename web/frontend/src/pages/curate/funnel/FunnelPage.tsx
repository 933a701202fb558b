import { Group, Stack, Table, Text, Title } from "@mantine/core";
import { Trans } from "react-i18next";

import { ChartFigure } from "../../../components/ChartFigure";
import { StartHere } from "../../../components/StartHere";
import { Empty } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { FunnelSankey } from "./FunnelSankey";
import { FlowTable } from "./FlowTable";
import { RuleTable } from "./RuleTable";
import { WorthTable } from "./WorthTable";
import { useFunnel, type Funnel } from "./useFunnel";

/** Where every comparison is, by which rule. */
export function FunnelPage() {
  const query = useFunnel();
  return <Loaded query={query}>{(data) => <Shown funnel={data} />}</Loaded>;
}

function Shown({ funnel }: { funnel: Funnel }) {
  if (funnel.comparisons === 0 && funnel.rejected.length === 0)
    return (
      <Empty title={t("Nothing has been imported")}>
        <StartHere actions={[["/data/import", t("Import data")]]} />
      </Empty>
    );
  const decided = funnel.rules.filter((rule) => rule.decided).reduce((sum, rule) => sum + rule.comparisons, 0);
  return (
    <Stack gap="sm">
      <Group gap="lg">
        <Text size="sm">
          <Trans
            i18nKey={"<b>{{comparisons}}</b> comparisons imported, <b2>{{decided}}</b2> decided"}
            values={{ comparisons: count(funnel.comparisons), decided: count(decided) }}
            components={{ b: <b />, b2: <b /> }}
          />
        </Text>
        {funnel.rejected.length > 0 && (
          <Text size="sm" className="dim">
            {t("{{count}} rows could not be taken", { count: funnel.rejected.reduce((sum, one) => sum + one.rows, 0) })}
          </Text>
        )}
      </Group>
      {funnel.comparisons > 0 && (
        <div className="panel">
          <ChartFigure
            title={t("From the sources into the pools, and the rules that put comparisons there")}
            table={<FlowTable funnel={funnel} />}
          >
            <FunnelSankey funnel={funnel} />
          </ChartFigure>
        </div>
      )}
      {funnel.rules.length > 0 && <RuleTable rules={funnel.rules} comparisons={funnel.comparisons} />}
      {funnel.worth.length > 0 && <WorthTable worth={funnel.worth} />}
      {funnel.rejected.length > 0 && <Rejected funnel={funnel} />}
    </Stack>
  );
}

function Rejected({ funnel }: { funnel: Funnel }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("Rows that imports could not take")}</Title>
      <Wide label={t("Rows that imports could not take")}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Reason")}</Table.Th>
              <Table.Th ta="right">{t("Rows")}</Table.Th>
              <Table.Th>{t("For example")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {funnel.rejected.map((one) => (
              <Table.Tr key={one.reason}>
                <Table.Td>{one.reason}</Table.Td>
                <Table.Td className="curate-number">{count(one.rows)}</Table.Td>
                <Table.Td className="dim">{one.example}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
    </div>
  );
}
