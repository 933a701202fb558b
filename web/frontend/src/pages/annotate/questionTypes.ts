import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../api/client";

export type QuestionTypes = Record<string, Schemas["QuestionTypeReply"]>;

/** The ways to ask about an item, by name: the page's component and the words of each. */
export function useQuestionTypes() {
  return useQuery({
    queryKey: ["question types"],
    queryFn: async ({ signal }): Promise<QuestionTypes> => {
      const types = await body(api.GET("/api/annotate/question-types", { signal }));
      return Object.fromEntries(types.map((type) => [type.name, type]));
    },
    staleTime: Infinity,
  });
}
