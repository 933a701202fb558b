import { useElementSize } from "@mantine/hooks";
import { useMemo } from "react";
import { Link } from "react-router";
import { Layer, Rectangle, Sankey, type SankeyLinkProps, type SankeyNodeProps } from "recharts";

import { poolName } from "../../../components/PoolBadge";
import { clipped } from "../../../format/clipped";
import { count } from "../../../format/count";
import { t, textKey } from "../../../i18n";
import { words } from "../shared/figures";
import { sankeyOf, type FunnelNode } from "./sankey";
import type { Funnel } from "./useFunnel";

const COLOURS: Record<string, string> = {
  gold: "light-dark(#b08900, #ffd43b)",
  silver: "light-dark(#5c6770, #adb5bd)",
  recycled: "light-dark(#0b7285, #3bc9db)",
  pending: "light-dark(#364fc7, #91a7ff)",
  unverified: "light-dark(#868e96, #6c757d)",
  discarded: "light-dark(#c92a2a, #ff8787)",
};
const SOURCE = "light-dark(#495057, #ced4da)";
const ROW = 26;
/** Below this width the three columns do not fit beside their names: the chart scrolls. */
const LEAST = 640;

/** Sources, pools and rules as bands of their sizes. Every bar leads to what it holds. */
export function FunnelSankey({ funnel }: { funnel: Funnel }) {
  const { ref, width } = useElementSize();
  const data = useMemo(() => sankeyOf(funnel), [funnel]);
  const rows = Math.max(...(["source", "pool", "rule"] as const).map((kind) => data.nodes.filter((node) => node.kind === kind).length));
  const wide = Math.max(LEAST, width);
  return (
    <div ref={ref} className="curate-sankey">
      {width > 0 && (
        <Sankey
          width={wide}
          height={Math.max(220, rows * ROW + 60)}
          data={data}
          nodePadding={14}
          nodeWidth={10}
          iterations={64}
          sort={false}
          margin={{ top: 8, right: 190, bottom: 8, left: 8 }}
          node={(props: SankeyNodeProps) => <Node {...props} most={wide > 800 ? 30 : 16} />}
          link={(props: SankeyLinkProps) => <Band {...props} />}
        />
      )}
    </div>
  );
}

const KINDS = { source: textKey("source"), pool: textKey("pool"), rule: textKey("rule") };

function nodeName({ kind, name }: FunnelNode): string {
  return kind === "pool" ? poolName(name) : kind === "rule" ? words(name) : name;
}

function Node({ x, y, width, height, payload, most }: SankeyNodeProps & { most: number }) {
  const node = payload as unknown as FunnelNode;
  const label = `${node.kind === "source" ? clipped(node.name, most) : nodeName(node)} ${count(node.comparisons)}`;
  const bar = (
    <>
      <Rectangle x={x} y={y} width={width} height={Math.max(height, 1.5)} fill={colourOf(node)} />
      <text x={x + width + 6} y={y + height / 2} dominantBaseline="central">
        {label}
      </text>
      <title>{`${nodeName(node)}: ${t("{{count}} comparisons", { count: node.comparisons })}`}</title>
    </>
  );
  return (
    <Layer>
      {node.to === null ? (
        bar
      ) : (
        <Link to={node.to} aria-label={`${t(KINDS[node.kind])} ${nodeName(node)}, ${t("{{count}} comparisons", { count: node.comparisons })}`}>
          {bar}
        </Link>
      )}
    </Layer>
  );
}

function Band({ sourceX, targetX, sourceY, targetY, sourceControlX, targetControlX, linkWidth, payload }: SankeyLinkProps) {
  const source = payload.source as unknown as FunnelNode;
  const target = payload.target as unknown as FunnelNode;
  return (
    <path
      d={`M${sourceX},${sourceY} C${sourceControlX},${sourceY} ${targetControlX},${targetY} ${targetX},${targetY}`}
      fill="none"
      stroke={colourOf(target)}
      strokeOpacity={0.28}
      strokeWidth={Math.max(linkWidth, 0.75)}
    >
      <title>{t("{{from}} to {{to}}: {{comparisons}}", { from: nodeName(source), to: nodeName(target), comparisons: t("{{count}} comparisons", { count: payload.value }) })}</title>
    </path>
  );
}

function colourOf(node: FunnelNode): string {
  return node.pool === null ? SOURCE : (COLOURS[node.pool] ?? SOURCE);
}
