import { Badge, Text } from "@mantine/core";
import { memo } from "react";

import type { Schemas } from "../../../api/client";
import { PoolBadge } from "../../../components/PoolBadge";
import { t } from "../../../i18n";
import type { Row } from "./useComparisons";

interface Props {
  row: Row;
  index: number;
  top: number;
  height: number;
  current: boolean;
  narrow: boolean;
  /** What was searched for. */
  needle: string;
  open: (index: number) => void;
}

/** One comparison in two lines, or on a narrow screen in four. */
export const ComparisonRow = memo(function ComparisonRow({ row, index, top, height, current, narrow, needle, open }: Props) {
  const origin = [row.categories.join(", "), row.languages.join(", ")].filter(Boolean).join(", ");
  const opinions = row.opinions === 0 ? "" : String(row.opinions);
  return (
    // eslint-disable-next-line jsx-a11y/click-events-have-key-events, jsx-a11y/interactive-supports-focus -- the grid has the focus and takes the keys
    <div
      role="row"
      id={`row-${row.comparison_id}`}
      aria-rowindex={index + 2}
      aria-selected={current}
      className={narrow ? "comparisons-card" : "comparisons-row"}
      style={{ position: "absolute", top: 0, left: 0, right: 0, height, transform: `translateY(${top}px)` }}
      onClick={() => open(index)}
    >
      <div role="gridcell" className="clamp">
        {row.turns > 1 && <span className="dim">{t("[{{turns}} turns]", { turns: row.turns })} </span>}
        <Told excerpt={row.prompt} needle={needle} />
      </div>
      <div role="gridcell" className="clamp side" data-preferred={row.label === "A" || undefined}>
        {narrow && <strong>A </strong>}
        <Told excerpt={row.a} needle={needle} />
      </div>
      <div role="gridcell" className="clamp side" data-preferred={row.label === "B" || undefined}>
        {narrow && <strong>B </strong>}
        <Told excerpt={row.b} needle={needle} />
      </div>
      <div role="gridcell" className="comparisons-facts">
        <PoolBadge pool={row.pool} />
        <Text size="xs" component="span" fw={600}>
          {row.label ?? t("no label")}
        </Text>
      </div>
      <div role="gridcell" className="comparisons-origin" title={row.sources.join(", ")}>
        <span>{row.sources.join(", ")}</span>
        <span className="dim">{origin}</span>
      </div>
      <div role="gridcell" className="comparisons-facts">
        {opinions}
        {row.conflict && (
          <Badge color="orange" variant="light" size="xs">{t("conflict")}</Badge>
        )}
      </div>
    </div>
  );
});

/** An excerpt; what was searched for is marked. */
function Told({ excerpt, needle }: { excerpt: Schemas["Excerpt"]; needle: string }) {
  const text = excerpt.text.trim();
  if (text === "") return <span className="dim">{t("(empty)")}</span>;
  const at = excerpt.found ? text.toLowerCase().indexOf(needle.toLowerCase()) : -1;
  if (at < 0) return <span>{text}</span>;
  return (
    <span>
      {excerpt.cut && "... "}
      {text.slice(0, at)}
      <mark className="found">{text.slice(at, at + needle.length)}</mark>
      {text.slice(at + needle.length)}
    </span>
  );
}
