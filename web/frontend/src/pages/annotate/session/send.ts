import { api, body } from "../../../api/client";
import type { Send } from "./outbox";

/** One try at a kept vote; its reply brings the next item. */
export const sendVote: Send = (vote) =>
  body(api.POST("/api/annotate/queues/{queue}/votes", { params: { path: { queue: vote.queue } }, body: vote.body }));
