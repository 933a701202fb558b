import { Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { count } from "../../../format/count";
import { NONE } from "../../../format/none";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";

type Share = Schemas["CountedShare"];

const WIDTH = 96;
const HEIGHT = 14;

interface ShareBarProps {
  share: Share;
  /** A line to compare with. */
  reference?: number;
  /** Which side of it is a fault: else either. */
  fault?: "below";
}

/** A share on a scale from 0 to 1 with its 95 % interval, and the same in words; red where the interval shows a fault. */
export function ShareBar({ share, reference, fault }: ShareBarProps) {
  if (share.share === null) return <Text span size="sm" className="dim">{NONE}</Text>;
  const [low, high] = [share.low ?? share.share, share.high ?? share.share];
  const off = reference !== undefined && ((fault === undefined && low > reference) || high < reference);
  const colour = off ? "light-dark(#c92a2a, #ffa8a8)" : "light-dark(#0b7285, #3bc9db)";
  return (
    <span style={{ display: "inline-flex", alignItems: "center", gap: 8 }}>
      <svg width={WIDTH} height={HEIGHT} aria-hidden="true" style={{ flexShrink: 0 }}>
        <line x1={0} x2={WIDTH} y1={HEIGHT / 2} y2={HEIGHT / 2} stroke="var(--assay-border)" />
        {reference !== undefined && (
          <line x1={WIDTH * reference} x2={WIDTH * reference} y1={0} y2={HEIGHT} stroke="var(--assay-dim)" strokeDasharray="2 2" />
        )}
        <line x1={WIDTH * low} x2={WIDTH * high} y1={HEIGHT / 2} y2={HEIGHT / 2} stroke={colour} strokeWidth={2} />
        {[low, high].map((end, index) => (
          <line key={index} x1={WIDTH * end} x2={WIDTH * end} y1={3} y2={HEIGHT - 3} stroke={colour} strokeWidth={1.5} />
        ))}
        <circle cx={Math.min(WIDTH - 3.5, Math.max(3.5, WIDTH * share.share))} cy={HEIGHT / 2} r={3.5} fill={colour} />
      </svg>
      <span style={{ whiteSpace: "nowrap" }}>
        <b>{percent(share.share)}</b>{" "}
        <Text span size="xs" className="dim">
          {t("{{low}} to {{high}}, of {{of}}", { low: percent(low, 0), high: percent(high, 0), of: count(share.of) })}
        </Text>
      </span>
    </span>
  );
}
