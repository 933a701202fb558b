import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { api, body, type Schemas } from "../../api/client";

export type Job = Schemas["JobRecord"];
export type Area = Schemas["KindReply"]["area"];
export type Settings = Job["settings"];
export type Value = Settings[string];

export function goesOn({ status }: Pick<Job, "status">): boolean {
  return status === "waiting" || status === "running" || status === "stopping";
}

/** The newest jobs, of some areas or of all, looked at often while one goes on. When one ends, what it may have changed is asked for again. */
export function useJobs(area?: Area[], limit = 30) {
  const queries = useQueryClient();
  const query = useQuery({
    queryKey: ["jobs", "list", area ?? null, limit],
    queryFn: () => body(api.GET("/api/jobs", { params: { query: { area, limit } } })),
    refetchInterval: ({ state }) => (state.data?.jobs.some(goesOn) === true || state.data?.elsewhere != null ? 2000 : 15_000),
  });
  const going = query.data?.jobs.filter(goesOn).map(({ id }) => id);
  const before = useRef(going);
  useEffect(() => {
    const ended = before.current?.some((id) => going?.includes(id) === false);
    if (ended === true) void queries.invalidateQueries({ predicate: ({ queryKey }) => CHANGED.has(String(queryKey[0])) });
    if (going !== undefined) before.current = going;
  }, [going, queries]);
  return query;
}

/** What a job may change, by the first word of its query. */
const CHANGED = new Set(["curate", "training-sets", "data", "comparisons", "runs", "rewards", "home"]);

export function useKinds() {
  return useQuery({ queryKey: ["jobs", "kinds"], queryFn: () => body(api.GET("/api/jobs/kinds")), staleTime: Infinity });
}

/** The settings of a kind, and what could be chosen. `choice`: the command that is chosen first. */
export function useForm(kind: string, choice: string | null) {
  return useQuery({
    queryKey: ["jobs", "form", kind, choice],
    queryFn: () => body(api.GET("/api/jobs/kinds/{kind}/form", { params: { path: { kind }, query: { choice } } })),
    placeholderData: (before) => (before?.kind === kind ? before : undefined),
  });
}

/** Where a form of a kind is, with these settings filled in. */
export function formPath(kind: string, settings: Settings = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(settings))
    if (Array.isArray(value)) for (const one of value) query.append(name, one);
    else if (value !== null) query.append(name, String(value));
  return `/jobs/new/${kind}${query.size > 0 ? `?${query.toString()}` : ""}`;
}
