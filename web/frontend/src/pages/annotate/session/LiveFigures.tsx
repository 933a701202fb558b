import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { figure } from "../../../format/figure";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";

const EVERY_MS = 5000;
const LEAST = 10; // items: of fewer, resampling tells nothing of how far off the figure may be

/** The queue now: how far it is, who is here, and of pairs how far people agree. */
export function LiveFigures({ queue, pairs }: { queue: string; pairs: boolean }) {
  const { data } = useQuery({
    queryKey: ["live", queue],
    queryFn: () => body(api.GET("/api/annotate/queues/{queue}/live", { params: { path: { queue } } })),
    refetchInterval: EVERY_MS,
  });
  if (data === undefined) return null;
  return (
    <>
      <Text size="sm">
        {t("{{count}} people here now", { count: data.voting })}; {t("{{count}} have voted so far", { count: data.people })}
      </Text>
      {!pairs ? null : data.agreement === null ? (
        <Text size="sm" className="dim">
          {t("How far people agree is shown when the queue is closed: votes are blind until then.")}
        </Text>
      ) : (
        <Agreement of={data.agreement} />
      )}
    </>
  );
}

function Agreement({ of: { with_ties: all, ties_dropped: decided } }: { of: Schemas["AgreementReport"] }) {
  if (all.items === 0) {
    return (
      <Text size="sm" className="dim">
        {t("No item has two votes yet: nothing to agree on.")}
      </Text>
    );
  }
  return (
    <>
      <Text size="sm">
        {t("Agreement:")} <Estimate of={all.percent} items={all.items} as={(share) => percent(share, 0)} />
      </Text>
      <Text size="sm">
        {t("Krippendorff's alpha")} <Estimate of={all.alpha} items={all.items} />, {t("without ties")} <Estimate of={decided.alpha} items={decided.items} />
      </Text>
      <Text size="xs" className="dim">
        {t("over {{count}} items with two votes or more", { count: all.items })}
        {all.items >= LEAST && t("; 95 % intervals")}
      </Text>
    </>
  );
}

interface EstimateProps {
  of: Schemas["CoefficientEstimate"];
  items: number;
  as?: (n: number) => string;
}

function Estimate({ of, items, as = (n) => figure(n, 2) }: EstimateProps) {
  if (of.value === null) return <span>{t("not to tell yet")}</span>;
  return (
    <span>
      <strong>{as(of.value)}</strong>
      {of.interval != null && items >= LEAST && ` (${t("{{low}} to {{high}}", { low: as(of.interval.low), high: as(of.interval.high) })})`}
    </span>
  );
}
