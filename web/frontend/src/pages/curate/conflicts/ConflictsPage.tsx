import { SegmentedControl, Stack, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { t, textKey } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";
import { ConflictCard } from "./ConflictCard";
import { mostTold } from "./mostTold";

type Parties = Schemas["PartyAgreement"];
type Between = Parties["between"];

const NAMES: Record<Between, string> = {
  source_people: textKey("source and people"),
  source_judges: textKey("source and judges"),
  people_judges: textKey("people and judges"),
};

/** Where source, people and judges contradict each other. */
export function ConflictsPage() {
  const query = useQuery({ queryKey: ["curate", "conflicts"], queryFn: () => body(api.GET("/api/curate/conflicts")) });
  const [address, setAddress] = useSearchParams();
  return (
    <Loaded query={query}>
      {({ parties }) => {
        if (parties.every((one) => one.common === 0))
          return (
            <Empty title={t("Nobody besides the sources has said anything")}>
              {t("Conflicts show once people or judges have answered: begin a loop under Stages, or a queue under Annotate.")}
            </Empty>
          );
        const most = mostTold(parties);
        const chosen = parties.find(({ between }) => between === address.get("between"))?.between ?? most;
        return (
          <Stack gap="sm">
            <div className="panel">
              <Title order={2} mb={4}>{t("Who contradicts whom")}</Title>
              <PartyTable parties={parties} />
            </div>
            <SegmentedControl
              aria-label={t("Conflicts between")}
              data={parties.map(({ between, opposed }) => ({ value: between, label: `${t(NAMES[between])} (${count(opposed)})` }))}
              value={chosen}
              onChange={(between) => setAddress({ between })}
              style={{ alignSelf: "start", maxWidth: "100%", flexWrap: "wrap" }}
            />
            {parties.some((one) => one.between === chosen && one.common === 0) ? (
              <Empty title={t("No comparison has an answer of both {{names}}", { names: t(NAMES[chosen]) })}>
                {t("Choose two others, or let both answer the same comparisons.")}
              </Empty>
            ) : (
              <Conflicts key={chosen} between={chosen} />
            )}
          </Stack>
        );
      }}
    </Loaded>
  );
}

function PartyTable({ parties }: { parties: Parties[] }) {
  return (
    <>
      <Wide label={t("Who contradicts whom")}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Between")}</Table.Th>
              <Table.Th ta="right">{t("Both spoke")}</Table.Th>
              <Table.Th ta="right">{t("Agree")}</Table.Th>
              <Table.Th ta="right">{t("Opposite sides")}</Table.Th>
              <Table.Th ta="right">{t("One undecided")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {parties.map((one) => (
              <Table.Tr key={one.between}>
                <Table.Th scope="row" fw={500}>
                  {t(NAMES[one.between])}
                </Table.Th>
                <Table.Td className="curate-number">{count(one.common)}</Table.Td>
                {[one.agreed, one.opposed, one.softened].map((value, index) => (
                  <Table.Td key={index} className="curate-number">
                    {count(value)}{" "}
                    <Text span size="xs" className="dim">
                      {one.common > 0 && percent(value / one.common)}
                    </Text>
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {t("Each party by the majority of its last answers; a tie or a split majority is undecided. Judges are language models, reward models, verifiers and simulated annotators.")}
      </Text>
    </>
  );
}

function Conflicts({ between }: { between: Between }) {
  const [page, setPage] = usePage();
  const query = useQuery({
    queryKey: ["curate", "conflicts", between, page],
    queryFn: () => body(api.GET("/api/curate/conflicts/{between}", { params: { path: { between }, query: { page } } })),
    placeholderData: keepPreviousData,
  });
  return (
    <Loaded query={query}>
      {(data) =>
        data.total === 0 ? (
          <Empty title={t("No conflict between {{names}}", { names: t(NAMES[between]) })} />
        ) : (
          <Stack gap="xs">
            <Text size="sm" className="dim">
              {t("{{comparisons}} on which {{names}} prefer opposite sides", { comparisons: t("{{count}} comparisons", { count: data.total }), names: t(NAMES[between]) })}
            </Text>
            {data.conflicts.map((one) => (
              <ConflictCard key={one.pair.comparison_id} conflict={one} />
            ))}
            <Pager page={page} size={data.page_size} total={data.total} onPage={setPage} />
          </Stack>
        )
      }
    </Loaded>
  );
}
