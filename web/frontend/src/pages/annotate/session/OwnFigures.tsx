import { Badge, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body } from "../../../api/client";
import { duration } from "../../../format/duration";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";

interface Whose {
  queue: string;
  person: string;
  /** Items voted on or passed on, as it stands now. */
  seen: number;
}

function useOwnFigures({ queue, person, seen }: Whose) {
  const { data } = useQuery({
    // Asked for again only where a block may have been filled.
    queryKey: ["own", queue, person, Math.floor(seen / 10)],
    queryFn: () => body(api.GET("/api/annotate/queues/{queue}/own", { params: { path: { queue } } })),
    placeholderData: (before) => before,
  });
  return data;
}

/** Gold checks passed one after the other, for the line at the top; nothing below two. */
export function Streak(whose: Whose) {
  const streak = useOwnFigures(whose)?.streak ?? 0;
  if (streak < 2) return null;
  return (
    <Badge variant="light" color="teal" tt="none">
      {t("{{count}} gold checks in a row", { count: streak })}
    </Badge>
  );
}

/** One's own gold checks, agreement and speed: by whole blocks of items, so that nothing tells which was a check. */
export function OwnFigures(whose: Whose) {
  const data = useOwnFigures(whose);
  if (data === undefined) return null;
  if (data.votes === 0) {
    return (
      <Text size="sm" className="dim">
        {t("Your figures come after your first {{count}} items.", { count: data.block })}
      </Text>
    );
  }
  return (
    <>
      {data.checks > 0 && (
        <Text size="sm">
          {t("Gold checks passed: {{passed}} of {{all}}", { passed: data.passed, all: data.checks })}
          {data.streak > 1 && t(", the last {{count}} in a row", { count: data.streak })}
        </Text>
      )}
      {data.compared > 0 && (
        <Text size="sm">
          {t("As most others: {{share}} of {{all}}", { share: percent(data.agreed / data.compared, 0), all: data.compared })}
        </Text>
      )}
      {data.median_seconds !== null && (
        <Text size="sm">
          {t("Median time: {{time}} an item", { time: duration(data.median_seconds) })}
        </Text>
      )}
      <Text size="xs" className="dim">
        {t("of your first {{votes}} items; {{block}} are added at a time", { votes: data.votes, block: data.block })}
      </Text>
    </>
  );
}
