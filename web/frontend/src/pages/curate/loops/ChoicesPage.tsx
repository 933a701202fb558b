import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty } from "../../../components/States";
import { counted } from "../../../format/count";
import { figure } from "../../../format/figure";
import { Loaded } from "../shared/Loaded";
import { PairCard } from "../shared/PairCard";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";

/** What an iteration asked about, and the error on gold that led there. */
export function ChoicesPage() {
  const { loop = "", iteration = "" } = useParams();
  const [page, setPage] = usePage();
  const number = Number(iteration);
  const query = useQuery({
    queryKey: ["curate", "choices", loop, number, page],
    queryFn: () =>
      body(api.GET("/api/curate/loops/{loop}/iterations/{iteration}", { params: { path: { loop, iteration: number }, query: { page } } })),
    placeholderData: keepPreviousData,
    enabled: Number.isInteger(number),
  });
  return (
    <Stack gap="sm">
      <Group gap="xs">
        <Title order={2}>
          {loop}, iteration {iteration}
        </Title>
        <Anchor component={Link} to="/curate/loops" size="sm">
          all loops
        </Anchor>
      </Group>
      <Loaded query={query}>
        {(data) =>
          data.total === 0 ? (
            <Empty title="This iteration has asked about nothing" />
          ) : (
            <Stack gap="xs">
              <Text size="sm" className="dim">
                {counted(data.total, "comparison")} in the order they were chosen
              </Text>
              {data.choices.map((choice) => (
                <PairCard key={choice.pair.comparison_id} pair={choice.pair}>
                  <Why choice={choice} />
                </PairCard>
              ))}
              <Pager page={page} size={data.page_size} total={data.total} onPage={setPage} />
            </Stack>
          )
        }
      </Loaded>
    </Stack>
  );
}

function Why({ choice }: { choice: Schemas["LoopChoice"] }) {
  return (
    <Text size="xs" className="dim">
      to {choice.route};{" "}
      {choice.near === null ? (
        "part of the seed"
      ) : (
        <>
          {figure(choice.similarity, 2)} similar to{" "}
          <Anchor component={Link} to={`/data/comparisons/${choice.near}`} size="xs">
            a gold pair
          </Anchor>{" "}
          whose label the model gave p = {figure(choice.p, 2)}
        </>
      )}
    </Text>
  );
}
