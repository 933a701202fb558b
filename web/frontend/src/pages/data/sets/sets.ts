import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { goesOn } from "../../curate/stages/useStages";

export type Asked = Schemas["SnapshotStage"];
export type TrainingSet = Schemas["TrainingSet"];

export const POOLS: Asked["pools"] = ["gold", "silver", "recycled", "unverified"];

/** What a set made of a queue's decisions is called at first: what no name may have is left out. */
export function nameFor(queue: string): string {
  const plain = queue.replace(/[^A-Za-z0-9_.+-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  return `${plain.slice(0, 80)}-train`.replace(/^-/, "");
}

/** The stage that makes a set, looked at until it has ended. */
export function useMaking(stage: string | null) {
  return useQuery({
    queryKey: ["training-sets", "making", stage],
    queryFn: async () => (await body(api.GET("/api/curate/stages"))).stages.find(({ id }) => id === stage) ?? null,
    enabled: stage !== null,
    refetchInterval: ({ state }) => (state.data == null || goesOn(state.data) ? 500 : false),
    gcTime: 0,
  });
}
