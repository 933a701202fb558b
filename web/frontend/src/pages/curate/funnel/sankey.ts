import { t } from "../../../i18n";
import type { Funnel } from "./useFunnel";

export interface FunnelNode {
  name: string;
  kind: "source" | "pool" | "rule";
  /** Where a click leads; null for what has no page. */
  to: string | null;
  /** Of a rule and a pool, for their colour. */
  pool: string | null;
  comparisons: number;
}

export interface FunnelLink {
  source: number;
  target: number;
  value: number;
}

const MOST_SOURCES = 7;
const MOST_RULES = 14;
const POOLS = ["gold", "silver", "recycled", "pending", "unverified", "discarded"];

/** Three columns, sources, pools and rules; the smallest of too many sources or rules are one. */
export function sankeyOf(funnel: Funnel): { nodes: FunnelNode[]; links: FunnelLink[] } {
  const sources = largest(sums(funnel.flows.map((flow) => [flow.source, flow.comparisons])), MOST_SOURCES);
  const sourceOf = (name: string) => (sources.has(name) ? name : t("other sources"));
  const rules = largest(sums(funnel.flows.map((flow) => [`${flow.pool}\n${flow.rule}`, flow.comparisons])), MOST_RULES);
  const ruleOf = (pool: string, rule: string) => (rules.has(`${pool}\n${rule}`) ? rule : t("other rules"));
  const nodes: FunnelNode[] = [];
  const places = new Map<string, number>();
  const indexOf = (key: string, node: () => Omit<FunnelNode, "comparisons">, comparisons: number): number => {
    let index = places.get(key);
    if (index === undefined) {
      index = nodes.length;
      places.set(key, index);
      nodes.push({ ...node(), comparisons: 0 });
    }
    nodes[index]!.comparisons += comparisons;
    return index;
  };
  const values = new Map<string, FunnelLink>();
  const flow = (source: number, target: number, value: number) => {
    const key = `${source} ${target}`;
    const link = values.get(key);
    if (link === undefined) values.set(key, { source, target, value });
    else link.value += value;
  };
  const ordered = [...funnel.flows].sort((one, other) => POOLS.indexOf(one.pool) - POOLS.indexOf(other.pool));
  for (const { source, pool, rule, comparisons } of ordered) {
    const from = sourceOf(source);
    const by = ruleOf(pool, rule);
    const ruleCount = funnel.rules.find((one) => one.pool === pool && one.rule === by);
    const first = indexOf(`source/${from}`, () => ({ name: from, kind: "source", to: sources.has(from) ? dataOf("source", from) : null, pool: null }), comparisons);
    const second = indexOf(`pool/${pool}`, () => ({ name: pool, kind: "pool", to: dataOf("pool", pool), pool }), comparisons);
    const third = indexOf(`rule/${pool}/${by}`, () => ({ name: by, kind: "rule", to: ruleCount?.decided ? ruleAddress(pool, by) : dataOf("pool", pool), pool }), comparisons);
    flow(first, second, comparisons);
    flow(second, third, comparisons);
  }
  return { nodes, links: [...values.values()] };
}

export function dataOf(name: "pool" | "source", value: string): string {
  return `/data?${new URLSearchParams({ [name]: value }).toString()}`;
}

export function ruleAddress(pool: string, rule: string): string {
  return `/curate/funnel/${encodeURIComponent(pool)}/${encodeURIComponent(rule)}`;
}

function sums(pairs: [string, number][]): Map<string, number> {
  const index = new Map<string, number>();
  for (const [name, value] of pairs) index.set(name, (index.get(name) ?? 0) + value);
  return index;
}

function largest(values: Map<string, number>, most: number): Set<string> {
  const names = [...values].sort((one, other) => other[1] - one[1]).map(([name]) => name);
  return new Set(names.length > most ? names.slice(0, most - 1) : names);
}
