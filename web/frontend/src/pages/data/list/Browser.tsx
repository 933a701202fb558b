import { Button, Group, Stack, Text, Title } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { StartHere } from "../../../components/StartHere";
import { Empty, Failure, Waiting } from "../../../components/States";
import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";
import { ComparisonTable } from "./ComparisonTable";
import { FilterBar } from "./FilterBar";
import { filtersSet, keyOf, queryOf } from "./filters";
import { Searching } from "./Searching";
import { SHORT, useComparisons, useCount, type Counted } from "./useComparisons";
import { useLasting } from "./useLasting";

/** The comparisons of the workspace, as far as somebody scrolls. What is looked for is in the address. */
export function Browser() {
  const [address] = useSearchParams();
  const curates = useAllows("curate");
  const key = keyOf(address);
  const query = useMemo(() => queryOf(new URLSearchParams(key)), [key]);
  const filtered = filtersSet(address) > 0;
  const pages = useComparisons(key, query);
  // After the rows: the store is read for one request at a time.
  const facets = useQuery({
    queryKey: ["comparison-facets"],
    queryFn: () => body(api.GET("/api/comparisons/facets")),
    staleTime: 60_000,
    enabled: !pages.isPending,
  });
  const rows = useMemo(() => pages.data?.pages.flatMap((page) => page.rows) ?? [], [pages.data]);
  const [selected, setAsked] = useState<string | null>(null);
  const [stopped, setStopped] = useState<string | null>(null);
  // Counting reads every text where one is searched for: only when asked to.
  const counts = pages.data !== undefined && pages.hasNextPage && filtered && (!address.get("text") || selected === key);
  const matching = useCount(key, query, counts);
  const queries = useQueryClient();
  const refresh = () => {
    setStopped(null);
    for (const name of ["comparisons", "comparisons-count", "comparison-facets"]) void queries.resetQueries({ queryKey: [name] });
  };
  const last = pages.data?.pages.at(-1);
  const total = facets.data?.comparisons ?? last?.total;
  const paused = stopped === key;
  const searching = useLasting(pages.isFetchingNextPage);
  return (
    <Stack gap="xs">
      <Group justify="space-between" wrap="nowrap">
        <Title order={1}>{t("Data")}</Title>
        <Group gap="xs" justify="flex-end">
          <Told rows={rows.length} ended={pages.data !== undefined && !pages.hasNextPage} filtered={filtered} total={total} matching={matching}>
            {filtered && pages.hasNextPage && !counts && (
              <Button variant="subtle" size="compact-xs" onClick={() => setAsked(key)}>{t("Count")}</Button>
            )}
          </Told>
          {curates && (
            <Button component={Link} to="/data/import" variant="light" size="compact-sm">
              {t("Import")}
            </Button>
          )}
          <Button component={Link} to="/data/training-sets" variant="light" size="compact-sm">
            {t("Training sets")}
          </Button>
          <Button variant="default" size="compact-sm" onClick={refresh} leftSection={<IconRefresh size={14} />}>
            {t("Reload")}
          </Button>
        </Group>
      </Group>
      <FilterBar facets={facets.data} />
      {last !== undefined && last.after !== null && (paused || (searching && last.rows.length < SHORT)) && (
        <Searching
          examined={last.examined}
          total={last.total}
          found={rows.length}
          stopped={paused}
          stop={() => setStopped(key)}
          goOn={() => setStopped(null)}
        />
      )}
      {pages.isPending ? (
        pages.failureReason !== null ? (
          <Failure error={pages.failureReason} />
        ) : (
          <Waiting />
        )
      ) : pages.isError && rows.length === 0 ? (
        <Failure error={pages.error} />
      ) : rows.length === 0 && !pages.hasNextPage ? (
        <Nothing filtered={filtered} />
      ) : (
        <ComparisonTable key={key} rows={rows} pages={pages} paused={paused} />
      )}
    </Stack>
  );
}

interface ToldProps {
  rows: number;
  ended: boolean;
  filtered: boolean;
  total: number | undefined;
  matching: Counted | null;
  children: React.ReactNode;
}

/** How many there are, as well as it is known yet. */
function Told({ rows, ended, filtered, total, matching, children }: ToldProps) {
  let status = "";
  if (ended && (filtered || rows >= (total ?? 0))) status = t("{{count}} comparisons", { count: rows });
  else if (!filtered) status = total === undefined ? "" : t("{{count}} comparisons", { count: total });
  else if (matching !== null && matching.share >= 1) status = t("{{count}} comparisons", { count: matching.matches });
  else if (matching !== null) status = t("more than {{max}}, counted {{share}}", { max: count(Math.max(matching.matches, rows)), share: percent(matching.share, 0) });
  return (
    <Group gap={4} wrap="nowrap">
      <Text size="sm" className="dim" role="status">
        {status}
      </Text>
      {children}
    </Group>
  );
}

function Nothing({ filtered }: { filtered: boolean }) {
  return filtered ? (
    <Empty title={t("No such comparison")}>
      {t("Take a filter away, or search for a shorter text. Rated or labelled responses that are in no comparison are not listed here.")}
    </Empty>
  ) : (
    <Empty title={t("There are no comparisons yet")}>
      <StartHere
        actions={[
          ["/data/import", t("Import data")],
          ["/first-hour", t("Try it with a sample")],
        ]}
      />
    </Empty>
  );
}
