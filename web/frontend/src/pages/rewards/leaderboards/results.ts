import { useQueries } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { t } from "../../../i18n";
import { short } from "../format";

export type Entry = Schemas["BenchmarkEntry"];
export type Result = Schemas["BenchmarkResult"];
export type Aggregate = Schemas["Aggregate"];

export function keyOf(entry: Entry): string {
  return `${entry.run_id} ${entry.model}`;
}

/** A name that tells the entries of one board apart. */
export function nameOf(entry: Entry, all: Entry[]): string {
  const same = all.filter((other) => other.model === entry.model);
  const version = new Set(same.map((other) => other.version)).size > 1 && entry.version !== null ? ` ${short(entry.version)}` : "";
  const ties = new Set(same.map((other) => other.ties)).size > 1 ? t(", ties {{ties}}", { ties: entry.ties }) : "";
  const data = new Set(same.map((other) => other.data)).size > 1 ? t(", items {{data}}", { data: entry.data ?? t("unknown") }) : "";
  return entry.model + version + ties + data;
}

/** All of the given entries, in their order; those on their way are left out. */
export function useResults(bench: string, entries: Entry[]) {
  const queries = useQueries({
    queries: entries.map((entry) => ({
      queryKey: ["rewards", "result", entry.run_id, bench, entry.model],
      queryFn: () =>
        body(api.GET("/api/rewards/results/{run_id}", { params: { path: { run_id: entry.run_id }, query: { bench, model: entry.model } } })),
      staleTime: Infinity, // a result never changes
    })),
  });
  return {
    results: queries.flatMap(({ data }) => (data === undefined ? [] : [data])),
    pending: queries.some(({ isPending }) => isPending),
    error: queries.find(({ failureReason }) => failureReason !== null)?.failureReason ?? null,
  };
}
