import { describe, expect, it } from "vitest";

import { sankeyOf } from "./sankey";
import type { Funnel } from "./useFunnel";

function funnelOf(flows: Funnel["flows"]): Funnel {
  return {
    comparisons: flows.reduce((sum, flow) => sum + flow.comparisons, 0),
    flows,
    rules: flows.map(({ pool, rule, comparisons }) => ({ pool, rule, comparisons, decided: pool !== "unverified", reasons: [] })),
    rejected: [],
    worth: [],
  };
}

describe("sankeyOf", () => {
  it("lets as much into a pool as out of it", () => {
    const { nodes, links } = sankeyOf(
      funnelOf([
        { source: "one", pool: "gold", rule: "people", comparisons: 3 },
        { source: "two", pool: "gold", rule: "verifier", comparisons: 4 },
        { source: "two", pool: "unverified", rule: "label of the source", comparisons: 5 },
      ]),
    );
    const gold = nodes.findIndex((node) => node.kind === "pool" && node.name === "gold");
    const sum = (side: "source" | "target") => links.filter((link) => link[side] === gold).reduce((all, link) => all + link.value, 0);
    expect([sum("target"), sum("source"), nodes[gold]?.comparisons]).toEqual([7, 7, 7]);
    expect(nodes[gold]?.to).toBe("/data?pool=gold");
    expect(nodes.find((node) => node.name === "people")?.to).toBe("/curate/funnel/gold/people");
    expect(nodes.find((node) => node.name === "label of the source")?.to).toBe("/data?pool=unverified");
  });
  it("makes one of the smallest of many sources, and loses nothing", () => {
    const flows = Array.from({ length: 12 }, (_, n) => ({ source: `s${n}`, pool: "silver", rule: "judges_agree", comparisons: 100 - n }));
    const { nodes } = sankeyOf(funnelOf(flows));
    const sources = nodes.filter((node) => node.kind === "source");
    expect(sources).toHaveLength(7);
    expect(sources.find((node) => node.name === "other sources")).toMatchObject({ to: null, comparisons: 94 + 93 + 92 + 91 + 90 + 89 });
    expect(sources.reduce((sum, node) => sum + node.comparisons, 0)).toBe(nodes.find((node) => node.kind === "pool")?.comparisons);
  });
});
