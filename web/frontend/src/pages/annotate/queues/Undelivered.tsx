import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import type { Problem } from "../../../api/problems";
import { Refused, Unsent } from "../sitting/Notices";
import { deliver, dismissRefused, keptVotes, refusedVotes } from "../sitting/outbox";
import { sendVote } from "../sitting/send";

/** Sends votes that an earlier visit left in this browser, and shows those that were refused. */
export function Undelivered({ person }: { person: string }) {
  const [trouble, setTrouble] = useState<Problem | null>(null);
  const [refused, setRefused] = useState(() => refusedVotes(person));
  useQuery({
    queryKey: ["outbox", person],
    queryFn: async ({ signal }) => {
      const kept = keptVotes(person);
      for (const vote of kept) await deliver(vote, sendVote, { signal, onTrouble: setTrouble });
      setTrouble(null);
      setRefused(refusedVotes(person));
      return kept.length;
    },
    gcTime: 0,
  });
  return (
    <>
      {trouble !== null && <Unsent trouble={trouble} forgetful={false} />}
      {refused.map((vote) => (
        <Refused
          key={`${vote.queue} ${vote.body.ticket}`}
          vote={vote}
          onDismiss={() => {
            dismissRefused(vote);
            setRefused(refusedVotes(person));
          }}
        />
      ))}
    </>
  );
}
