import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { counted } from "../../../format/count";
import { percent } from "../../../format/percent";

const EVERY_MS = 5000;

/** The queue now: how far it is, who is here, how far people agree. */
export function LiveFigures({ queue }: { queue: string }) {
  const { data } = useQuery({
    queryKey: ["live", queue],
    queryFn: () => body(api.GET("/api/annotate/queues/{queue}/live", { params: { path: { queue } } })),
    refetchInterval: EVERY_MS,
  });
  if (data === undefined) return null;
  const { with_ties: all, ties_dropped: decided } = data.agreement;
  return (
    <>
      <Text size="sm">
        {counted(data.voting, "person", "people")} here now; {counted(data.people, "has", "have")} voted so far
      </Text>
      {all.items === 0 ? (
        <Text size="sm" className="dim">
          No item has two votes yet: nothing to agree on.
        </Text>
      ) : (
        <>
          <Text size="sm">
            Agreement: <Estimate of={all.percent} as={(share) => percent(share, 0)} />
          </Text>
          <Text size="sm">
            Krippendorff&apos;s alpha <Estimate of={all.alpha} />, without ties <Estimate of={decided.alpha} />
          </Text>
          <Text size="xs" className="dim">
            over {counted(all.items, "item")} with two votes or more; 95 % intervals
          </Text>
        </>
      )}
    </>
  );
}

function Estimate({ of, as = (n) => n.toFixed(2) }: { of: Schemas["Estimate"]; as?: (n: number) => string }) {
  if (of.value === null) return <span>not to tell yet</span>;
  return (
    <span>
      <strong>{as(of.value)}</strong>
      {of.interval != null && ` (${as(of.interval.low)} to ${as(of.interval.high)})`}
    </span>
  );
}
