import { Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { ShareBar } from "../shared/ShareBar";
import { BiasTable } from "./BiasTable";
import { GoldTable } from "./GoldTable";
import { PeopleTable } from "./PeopleTable";

/** Judges, people and sources against gold, and whether they prefer what is shown first. */
export function QualityPage() {
  const query = useQuery({ queryKey: ["curate", "quality"], queryFn: () => body(api.GET("/api/curate/quality")) });
  return (
    <Loaded query={query}>
      {(data) =>
        data.annotators.length === 0 ? (
          <Empty title={t("Nobody has said anything yet")}>
            {t("People answer in a queue, judges when they are asked; gold comes from people, or from constraints that can be checked.")}
            <StartHere
              actions={[
                ["/annotate/new", t("Make a queue")],
                ["/jobs/new/judge", t("Ask judges")],
                ["/jobs/new/verify", t("Verify")],
              ]}
            />
          </Empty>
        ) : (
          <Stack gap="sm">
            <GoldTable annotators={data.annotators} />
            <PeopleTable annotators={data.annotators} />
            <BiasTable annotators={data.annotators} />
            {data.agreements.length > 0 && <Agreements agreements={data.agreements} />}
          </Stack>
        )
      }
    </Loaded>
  );
}

function Agreements({ agreements }: { agreements: Schemas["JudgesAgreement"][] }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("Judges against each other")}</Title>
      <Wide label={t("Judges against each other")}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("One")}</Table.Th>
              <Table.Th>{t("Other")}</Table.Th>
              <Table.Th>{t("Same side")}</Table.Th>
              <Table.Th ta="right">{t("Cohen's kappa")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {agreements.map((one) => (
              <Table.Tr key={`${one.first} ${one.second}`}>
                <Table.Td>{one.first}</Table.Td>
                <Table.Td>{one.second}</Table.Td>
                <Table.Td>
                  <ShareBar share={one.same} />
                </Table.Td>
                <Table.Td className="curate-number">{figure(one.kappa, 2)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">{t("Over comparisons on which both prefer a side.")}</Text>
    </div>
  );
}
