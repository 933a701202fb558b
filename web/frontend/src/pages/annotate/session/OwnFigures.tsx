import { Badge, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body } from "../../../api/client";
import { counted } from "../../../format/count";
import { duration } from "../../../format/duration";
import { percent } from "../../../format/percent";

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
      {counted(streak, "gold check")} in a row
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
        Your figures come after your first {data.block} items.
      </Text>
    );
  }
  return (
    <>
      {data.checks > 0 && (
        <Text size="sm">
          Gold checks passed: <strong>{data.passed}</strong> of {data.checks}
          {data.streak > 1 && (
            <>
              , the last <strong>{data.streak}</strong> in a row
            </>
          )}
        </Text>
      )}
      {data.compared > 0 && (
        <Text size="sm">
          As most others: <strong>{percent(data.agreed / data.compared, 0)}</strong> of {data.compared}
        </Text>
      )}
      {data.median_seconds !== null && (
        <Text size="sm">
          Median time: <strong>{duration(data.median_seconds)}</strong> an item
        </Text>
      )}
      <Text size="xs" className="dim">
        of your first {data.votes} items; {data.block} are added at a time
      </Text>
    </>
  );
}
