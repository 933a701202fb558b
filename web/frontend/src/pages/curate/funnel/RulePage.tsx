import { Anchor, Group, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";

import { api, body } from "../../../api/client";
import { poolName } from "../../../components/PoolBadge";
import { Empty } from "../../../components/States";
import { t } from "../../../i18n";
import { words } from "../shared/figures";
import { Loaded } from "../shared/Loaded";
import { PairCard } from "../shared/PairCard";
import { Pager } from "../shared/Pager";
import { usePage } from "../shared/usePage";
import { dataOf } from "./sankey";

/** What a rule decided, with its reasons. */
export function RulePage() {
  const { pool = "", rule = "" } = useParams();
  const [page, setPage] = usePage();
  const query = useQuery({
    queryKey: ["curate", "decided", pool, rule, page],
    queryFn: () => body(api.GET("/api/curate/decided", { params: { query: { pool, rule, page } } })),
    placeholderData: keepPreviousData,
  });
  return (
    <Stack gap="sm">
      <Group gap="xs">
        <Title order={2}>{t("{{pool}} by {{rule}}", { pool: poolName(pool), rule: words(rule) })}</Title>
        <Anchor component={Link} to="/curate/funnel" size="sm">{t("the funnel")}</Anchor>
        <Anchor component={Link} to={dataOf("pool", pool)} size="sm">{t("all of {{pool}}", { pool: poolName(pool) })}</Anchor>
      </Group>
      <Loaded query={query}>
        {(data) =>
          data.total === 0 ? (
            <Empty title={t("This rule holds nothing here")}>{t("Its decisions may have been replaced since.")}</Empty>
          ) : (
            <Stack gap="xs">
              <Text size="sm" className="dim">
                {t("{{comparisons}}, the last decided first", { comparisons: t("{{count}} comparisons", { count: data.total }) })}
              </Text>
              {data.pairs.map((pair) => (
                <PairCard key={pair.comparison_id} pair={pair}>
                  <Text size="xs" className="dim" style={{ overflowWrap: "anywhere" }}>
                    {pair.reason}
                  </Text>
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
