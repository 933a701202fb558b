import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";

export type Funnel = Schemas["FunnelReply"];
export type Rule = Schemas["RuleCount"];

export function useFunnel() {
  return useQuery({ queryKey: ["curate", "funnel"], queryFn: () => body(api.GET("/api/curate/funnel")), refetchInterval: 20_000 });
}
