import { Stack } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { matchPath, useLocation } from "react-router";

import { t } from "../../i18n";
import { Refused, Unsent } from "./session/Notices";
import { deliver, dismissRefused, keptVotes, refusedVotes } from "./session/outbox";
import { sendVote } from "./session/send";
import { useTrouble } from "./session/useTrouble";

const SITTINGS = ["/annotate/queue/:queue", "/annotate/queue/:queue/adjudicate"];

/** On every page but a session, which sends them itself: votes that an earlier visit left in this browser. */
export function Undelivered({ person }: { person: string }) {
  const { pathname } = useLocation();
  return SITTINGS.some((path) => matchPath(path, pathname)) ? null : <Sending key={person} person={person} />;
}

/** Sends them, says so, and shows those that were refused. */
function Sending({ person }: { person: string }) {
  const [trouble, onTrouble] = useTrouble();
  const [refused, setRefused] = useState(() => refusedVotes(person));
  useQuery({
    queryKey: ["outbox", person],
    queryFn: async ({ signal }) => {
      let stored = 0;
      for (const vote of keptVotes(person)) {
        stored += "reply" in (await deliver(vote, sendVote, { signal, onTrouble, whileKept: true })) ? 1 : 0;
      }
      onTrouble(null);
      setRefused(refusedVotes(person));
      if (stored > 0) {
        const message = t("{{count}} votes that waited in this browser are stored now.", { count: stored });
        notifications.show({ color: "teal", message: message, autoClose: 10_000 });
      }
      return stored;
    },
    gcTime: 0,
  });
  if (trouble === null && refused.length === 0) return null;
  return (
    <Stack gap="xs" mb="sm">
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
    </Stack>
  );
}
