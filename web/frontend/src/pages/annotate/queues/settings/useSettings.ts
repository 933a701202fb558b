import { notifications } from "@mantine/notifications";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../../api/client";

export type Settings = Schemas["QueueSettingsReply"];

/** Everything of a queue that may be edited. */
export function useSettings(queue: string) {
  return useQuery({
    queryKey: ["queue-settings", queue],
    queryFn: () => body(api.GET("/api/queues/{queue}/settings", { params: { path: { queue } } })),
  });
}

/** A change of the queue: what is shown of it is read again, and what went wrong is said. */
export function useEdit<T>(queue: string, change: (value: T) => Promise<unknown>, done?: string) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => {
      if (done !== undefined) notifications.show({ color: "teal", message: done });
    },
    onError: (error) => notifications.show({ color: "red", message: error.message }),
    onSettled: () =>
      Promise.all(
        [["queue-settings", queue], ["queue", queue], ["queues"], ["queue-items", queue]].map((queryKey) =>
          queries.invalidateQueries({ queryKey }),
        ),
      ),
  });
}
