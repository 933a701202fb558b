import { useEffect, useState } from "react";

import { api } from "../../../api/client";
import { isRefusal } from "./outbox";

const LONGEST_S = 300;

/** Keeps the item with its person while the page is in view; true once it was given away all the same. */
export function useLease(queue: string, ticket: string | undefined, leaseSeconds: number): boolean {
  const [lost, setLost] = useState<string | null>(null);
  useEffect(() => {
    if (ticket === undefined) return;
    let stopped = false;
    const renew = async () => {
      if (document.hidden) return;
      try {
        await api.POST("/api/annotate/queues/{queue}/renewal", { params: { path: { queue } }, body: { ticket } });
      } catch (error) {
        if (isRefusal(error) && !stopped) setLost(ticket); // anything else passes, or the vote will tell
      }
    };
    const timer = setInterval(() => void renew(), 1000 * Math.min(LONGEST_S, Math.max(1, leaseSeconds / 3)));
    return () => {
      stopped = true;
      clearInterval(timer);
    };
  }, [queue, ticket, leaseSeconds]);
  return ticket !== undefined && lost === ticket;
}
