import { Anchor, Code, Select, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty } from "../../../components/States";
import { count, counted } from "../../../format/count";
import { momentInWords } from "../../../format/moment";
import { Loaded } from "../shared/Loaded";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";
import { ClusterCard } from "./ClusterCard";

type Search = Schemas["DuplicateSearch"];

/** Searches for near-duplicates, and the clusters of one with their members. */
export function DuplicatesPage() {
  const query = useQuery({ queryKey: ["curate", "duplicates"], queryFn: () => body(api.GET("/api/curate/near-duplicates")) });
  const [address, setAddress] = useSearchParams();
  return (
    <Loaded query={query}>
      {({ searches }) => {
        const chosen = searches.find(({ run_id }) => run_id === address.get("run")) ?? searches.find(({ clusters }) => clusters > 0) ?? searches[0];
        if (chosen === undefined)
          return (
            <Empty title="Nobody has looked for near-duplicates">
              Under Stages, or <Code>assay data near-dup --threshold 0.8</Code>
            </Empty>
          );
        return (
          <Stack gap="sm">
            <Select
              label="Search"
              maw={520}
              data={searches.map((one) => ({ value: one.run_id, label: `${momentInWords(one.at)}: ${one.over}s at ${one.threshold} or more, ${counted(one.clusters, "cluster")}` }))}
              value={chosen.run_id}
              onChange={(run) => run !== null && setAddress({ run })}
              allowDeselect={false}
            />
            <Summary search={chosen} />
            {chosen.clusters > 0 ? (
              <Clusters key={chosen.run_id} search={chosen} />
            ) : (
              <Empty title={`No two ${chosen.over}s are that similar`}>
                A lower similarity, or prompts alone, may find some:{" "}
                <Anchor component={Link} to="/curate/stages" size="sm">
                  Stages
                </Anchor>
                , or <Code>assay data near-dup --threshold 0.5 --over prompt</Code>
              </Empty>
            )}
          </Stack>
        );
      }}
    </Loaded>
  );
}

function Summary({ search }: { search: Search }) {
  return (
    <Text size="sm">
      Among {counted(search.items, search.over)}, <b>{counted(search.clusters, "cluster")}</b> of {counted(search.members, "member")}:{" "}
      {count(search.extra)} beside those kept, {count(search.discarded)} discarded by this search
      {search.opposite > 0 && <>, <b>{count(search.opposite)} with the label opposite to the kept one&apos;s</b></>}. Jaccard similarity of{" "}
      {search.shingle}-word shingles, {search.threshold} or more in every part.{" "}
      <Anchor component={Link} to={`/runs/${search.run_id}`} size="sm">
        its run
      </Anchor>
    </Text>
  );
}

function Clusters({ search }: { search: Search }) {
  const [page, setPage] = usePage();
  const query = useQuery({
    queryKey: ["curate", "clusters", search.run_id, page],
    queryFn: () => body(api.GET("/api/curate/near-duplicates/{run_id}", { params: { path: { run_id: search.run_id }, query: { page } } })),
    placeholderData: keepPreviousData,
  });
  return (
    <Loaded query={query}>
      {(data) => (
        <Stack gap="xs">
          {data.clusters.map((cluster) => (
            <ClusterCard key={cluster.cluster_id} cluster={cluster} />
          ))}
          <Pager page={page} size={data.page_size} total={data.total} onPage={setPage} />
        </Stack>
      )}
    </Loaded>
  );
}
