import { Anchor, Stack, Text, Title } from "@mantine/core";
import { Link, useParams, useSearchParams } from "react-router";

import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { ForestPlot } from "../charts/ForestPlot";
import { AggregateTable } from "./AggregateTable";
import { BestOfCurves } from "./BestOfCurves";
import { EntryTable } from "./EntryTable";
import { useLeaderboards } from "./LeaderboardsPage";
import { Protocol } from "./Protocol";
import { keyOf, nameOf, useResults } from "./results";
import { StyleMatrix } from "./StyleMatrix";
import { SubsetTable } from "./SubsetTable";

const AT_FIRST = 6;

/** One benchmark: which results are shown and of which part is in the address. */
export function BoardPage() {
  const { bench = "" } = useParams();
  const [search, setSearch] = useSearchParams();
  const boards = useLeaderboards();
  const board = boards.data?.boards.find((one) => one.bench === bench);
  const newest = board?.entries ?? [];
  // The best first, then those that are not ranked; at first the newest few of them are shown.
  const entries = [...newest].sort((one, other) => Number(other.ranked) - Number(one.ranked) || (other.headline?.value ?? -Infinity) - (one.headline?.value ?? -Infinity) || 0);
  const selected = search.getAll("result");
  const visible = entries.filter((entry) => (selected.length > 0 ? selected.includes(keyOf(entry)) : newest.indexOf(entry) < AT_FIRST));
  const { results, pending, error } = useResults(bench, visible);

  if (boards.data === undefined) return boards.failureReason === null ? <Waiting /> : <Failure error={boards.failureReason} />;
  if (board === undefined) return <Empty title={t("Nothing has been evaluated on {{bench}}", { bench })}>{t("Choose another benchmark under Leaderboards.")}</Empty>;

  const parts = [...new Set(results.flatMap((result) => result.aggregates.map(({ name }) => name)))];
  const requested = search.get("part");
  const part = requested !== null && parts.includes(requested) ? requested : (results[0]?.entry.headline?.name ?? "overall");
  const set = (name: string, values: string[]) => {
    const next = new URLSearchParams(search);
    next.delete(name);
    for (const value of values) next.append(name, value);
    setSearch(next);
  };
  const rows = results.flatMap((result) => {
    const aggregate = result.aggregates.find(({ name }) => name === part);
    return aggregate?.value == null ? [] : [{ name: nameOf(result.entry, entries) + (result.entry.ranked ? "" : t(", not ranked")), ranked: result.entry.ranked, value: aggregate.value, low: aggregate.low ?? null, high: aggregate.high ?? null }];
  });
  rows.sort((one, other) => Number(other.ranked) - Number(one.ranked) || other.value - one.value);
  return (
    <Stack gap="md">
      <div>
        <Anchor component={Link} to="/rewards/leaderboards" size="sm">{t("All benchmarks")}</Anchor>
        <Title order={2}>{board.title}</Title>
      </div>
      <EntryTable
        entries={entries}
        shown={visible.map(keyOf)}
        onShow={(keys) => set("result", keys)}
      />
      {error !== null && <Failure error={error} />}
      {pending && <Waiting />}
      {results.length > 0 && (
        <>
          <div className="panel">
            {rows.length > 0 ? (
              <ForestPlot title={t("{{part}}, with 95 % intervals", { part })} rows={rows} />
            ) : (
              <Text size="sm">{t("None of the chosen results has a value of {{part}}.", { part })}</Text>
            )}
          </div>
          {bench === "rm-bench" && <StyleMatrix results={results} names={results.map(({ entry }) => nameOf(entry, entries))} />}
          <BestOfCurves results={results} names={results.map(({ entry }) => nameOf(entry, entries))} />
          <AggregateTable
            results={results}
            names={results.map(({ entry }) => nameOf(entry, entries))}
            part={part}
            onPart={(name) => set("part", [name])}
          />
          <SubsetTable results={results} names={results.map(({ entry }) => nameOf(entry, entries))} />
          <Protocol result={results[0]!} />
        </>
      )}
    </Stack>
  );
}
