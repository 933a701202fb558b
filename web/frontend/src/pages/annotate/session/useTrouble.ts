import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";

import type { Problem } from "../../../api/problems";

/** Why a kept vote is not through yet; null once it is. */
export function useTrouble(): [Problem | null, (problem: Problem | null) => void] {
  const queries = useQueryClient();
  const [trouble, setTrouble] = useState<Problem | null>(null);
  const onTrouble = useCallback(
    (problem: Problem | null) => {
      setTrouble(problem);
      // Asks who is signed in: brings the sign-in page, or the token that changes must carry now.
      if (problem?.status === 401 || problem?.status === 403) void queries.invalidateQueries({ queryKey: ["session"] });
    },
    [queries],
  );
  return [trouble, onTrouble];
}
