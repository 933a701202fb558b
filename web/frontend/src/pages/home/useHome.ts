import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../api/client";

export type Figures = Schemas["FiguresReply"];

/** How far the workspace is; asked again while somebody looks at it. */
export function useHome(enabled = true) {
  return useQuery({ queryKey: ["home"], queryFn: () => body(api.GET("/api/home")), refetchInterval: 5000, enabled });
}
