import { Anchor, Select, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty } from "../../../components/States";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
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
            <Empty title={t("Nobody has looked for near-duplicates")}>
              <StartHere actions={[["/jobs/new/near_duplicates", t("Look for near-duplicates")]]} />
            </Empty>
          );
        return (
          <Stack gap="sm">
            <Select
              label={t("Search")}
              maw={520}
              data={searches.map((one) => ({ value: one.run_id, label: t("{{at}}: {{over}} at {{threshold}} or more, {{clusters}}", { at: momentInWords(one.at), over: one.over === "prompt" ? t("prompts") : t("pairs"), threshold: one.threshold, clusters: t("{{count}} clusters", { count: one.clusters }) }) }))}
              value={chosen.run_id}
              onChange={(run) => run !== null && setAddress({ run })}
              allowDeselect={false}
            />
            <Summary search={chosen} />
            {chosen.clusters > 0 ? (
              <Clusters key={chosen.run_id} search={chosen} />
            ) : (
              <Empty title={t("No two are that similar")}>
                {t("A lower similarity, or prompts alone, may find some.")}
                <StartHere actions={[["/jobs/new/near_duplicates?threshold=0.5&over=prompt", t("Look at prompts, from 0.5")]]} />
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
      <Trans
        i18nKey="Among {{items}}, <b>{{clusters}}</b> of {{members}}: {{extra}} beside those kept, {{discarded}} discarded by this search"
        values={{
          items: search.over === "prompt" ? t("{{count}} prompts", { count: search.items }) : t("{{count}} comparisons", { count: search.items }),
          clusters: t("{{count}} clusters", { count: search.clusters }),
          members: t("{{count}} members", { count: search.members }),
          extra: search.extra,
          discarded: search.discarded,
        }}
        components={{ b: <b /> }}
      />
      {search.opposite > 0 && (
        <>
          , <b>{t("{{opposite}} with the label opposite to the kept one's", { opposite: search.opposite })}</b>
        </>
      )}
      {t(". Jaccard similarity of {{shingle}}-word shingles, {{threshold}} or more in every part.", { shingle: search.shingle, threshold: search.threshold })}{" "}
      <Anchor component={Link} to={`/runs/${search.run_id}`} size="sm">{t("its run")}</Anchor>
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
