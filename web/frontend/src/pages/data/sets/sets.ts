import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { goesOn } from "../../jobs/useJobs";

export type TrainingSet = Schemas["TrainingSet"];

export const POOLS = ["gold", "silver", "recycled", "unverified"];

/** What a set made of a queue's decisions is called at first: what no name may have is left out. */
export function nameFor(queue: string): string {
  const plain = queue.replace(/[^A-Za-z0-9_.+-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "");
  return `${plain.slice(0, 80)}-train`.replace(/^-/, "");
}

/** The job that makes a set, looked at until it has ended. */
export function useMaking(job: string | null) {
  return useQuery({
    queryKey: ["training-sets", "making", job],
    queryFn: () => body(api.GET("/api/jobs/{job_id}", { params: { path: { job_id: job ?? "" } } })),
    enabled: job !== null,
    refetchInterval: ({ state }) => (state.data === undefined || goesOn(state.data) ? 500 : false),
    gcTime: 0,
  });
}
