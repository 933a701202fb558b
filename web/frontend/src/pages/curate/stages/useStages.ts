import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";

import { api, body, type Schemas } from "../../../api/client";
import { textKey } from "../../../i18n";

export type Stage = Schemas["StageRecord"];
export type Settings = Schemas["StageRequest"]["settings"];
export type Options = Schemas["StageOptions"];

export function goesOn(stage: Stage): boolean {
  return stage.status === "starting" || stage.status === "running" || stage.status === "pausing";
}

/** The stages, looked at often while one goes on. When it ends, everything it may have changed is asked for again. */
export function useStages() {
  const queries = useQueryClient();
  const query = useQuery({
    queryKey: ["curate", "stages"],
    queryFn: () => body(api.GET("/api/curate/stages")),
    refetchInterval: ({ state }) => (state.data?.stages.some(goesOn) === true || state.data?.elsewhere != null ? 2000 : 10_000),
  });
  const going = query.data?.stages.find(goesOn)?.id ?? null;
  const before = useRef(going);
  useEffect(() => {
    if (before.current !== null && going !== before.current) void queries.invalidateQueries({ queryKey: ["curate"] });
    before.current = going;
  }, [going, queries]);
  return query;
}

export const TITLES: Record<Settings["stage"], string> = {
  clean: textKey("Clean"),
  dedup: textKey("Deduplicate"),
  near_duplicates: textKey("Near-duplicates"),
  decontaminate: textKey("Decontaminate"),
  verify: textKey("Verify"),
  consistency: textKey("Consistency with reward models"),
  judge: textKey("Ask judges"),
  stage1: textKey("Stage 1: people and judges"),
  stage2: textKey("Stage 2: reward models"),
  snapshot: textKey("Training set"),
};
