import { SegmentedControl, Stack, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count, counted } from "../../../format/count";
import { percent } from "../../../format/percent";
import { Loaded } from "../shared/Loaded";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";
import { ConflictCard } from "./ConflictCard";
import { mostTold } from "./mostTold";

type Parties = Schemas["PartyAgreement"];
type Between = Parties["between"];

const NAMES: Record<Between, string> = {
  source_people: "source and people",
  source_judges: "source and judges",
  people_judges: "people and judges",
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
            <Empty title="Nobody besides the sources has said anything">
              Conflicts show once people or judges have answered: begin a loop under Stages, or a queue under Annotate.
            </Empty>
          );
        const most = mostTold(parties);
        const chosen = parties.find(({ between }) => between === address.get("between"))?.between ?? most;
        return (
          <Stack gap="sm">
            <div className="panel">
              <Title order={2} mb={4}>
                Who contradicts whom
              </Title>
              <PartyTable parties={parties} />
            </div>
            <SegmentedControl
              aria-label="Conflicts between"
              data={parties.map(({ between, opposed }) => ({ value: between, label: `${NAMES[between]} (${count(opposed)})` }))}
              value={chosen}
              onChange={(between) => setAddress({ between })}
              style={{ alignSelf: "start", maxWidth: "100%", flexWrap: "wrap" }}
            />
            {parties.some((one) => one.between === chosen && one.common === 0) ? (
              <Empty title={`No comparison has an answer of both ${NAMES[chosen]}`}>
                Choose two others, or let both answer the same comparisons.
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
      <Wide label="Who contradicts whom">
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Between</Table.Th>
              <Table.Th ta="right">Both spoke</Table.Th>
              <Table.Th ta="right">Agree</Table.Th>
              <Table.Th ta="right">Opposite sides</Table.Th>
              <Table.Th ta="right">One undecided</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {parties.map((one) => (
              <Table.Tr key={one.between}>
                <Table.Th scope="row" fw={500}>
                  {NAMES[one.between]}
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
        Each party by the majority of its last answers; a tie or a split majority is undecided. Judges are language models, reward models,
        verifiers and simulated annotators.
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
          <Empty title={`No conflict between ${NAMES[between]}`} />
        ) : (
          <Stack gap="xs">
            <Text size="sm" className="dim">
              {counted(data.total, "comparison")} on which {NAMES[between]} prefer opposite sides
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
