import { describe, expect, it } from "vitest";

import { meanOverSeeds, merged, placeOfStep, seriesOf, type Chart, type CurvesReply } from "./curves";

const NONE = { first: 0, width: 1, step: [], mean: {}, low: {}, high: {} };
const CURVE = { name: "training", key: "loss", of: "step" as const, low: null, high: null, spread: null, window: 1, scale: 1 };
const CHART: Chart = { section: "Curves", title: "Loss", curves: [CURVE], unit: "", share: false, note: "", reference: null, x: "step", x_label: "step" };

function reply(step: CurvesReply["step"], anew = false): CurvesReply {
  return {
    state: "s",
    anew,
    behind: false,
    read: 1,
    running: true,
    rows: step.step.length,
    broken: 0,
    progress: null,
    charts: [CHART],
    step,
    evaluation: NONE,
    latest: [],
    moments: [],
  };
}

describe("curves", () => {
  it("puts new points behind the ones it has, takes the place of an unfinished one, and leaves gaps for late numbers", () => {
    const before = reply({ ...NONE, step: [1, 2, 3], mean: { loss: [3, 2, 9] } }, true);
    const found = merged(before, reply({ ...NONE, first: 2, step: [4, 6], mean: { loss: [1, 0], kl: [5, 6] } }));
    expect(found.step.step).toEqual([1, 2, 4, 6]);
    expect(found.step.mean).toEqual({ loss: [3, 2, 1, 0], kl: [null, null, 5, 6] });
  });

  it("forgets what it has when the server says so or when points stand for more rows", () => {
    const before = reply({ ...NONE, step: [1, 2, 3], mean: { loss: [3, 2, 1] } }, true);
    expect(merged(before, reply({ ...NONE, step: [1], mean: { loss: [7] } }, true)).step.step).toEqual([1]);
    expect(merged(before, reply({ ...NONE, width: 2, step: [2, 3], mean: { loss: [2.5, 1] } })).step.step).toEqual([2, 3]);
  });

  it("draws bands of deviations, of bounds, and none of other numbers", () => {
    const points = { ...NONE, width: 2, step: [2, 4], mean: { loss: [1, null], std: [0.5, 0.5] }, low: { loss: [0, null] }, high: { loss: [2, null] } };
    expect(seriesOf(CHART, reply(points))).toEqual([{ name: "training", x: [2, 4], y: [1, null], low: [0, null], high: [2, null] }]);
    const spread = { ...CHART, curves: [{ ...CURVE, spread: "std", scale: 2 }] };
    expect(seriesOf(spread, reply(points))[0]).toMatchObject({ y: [2, null], low: [1, null], high: [3, null] });
    expect(seriesOf({ ...CHART, curves: [{ ...CURVE, key: "other" }] }, reply(points))).toEqual([]);
  });

  it("smooths steps and leaves evaluations and gaps as they are", () => {
    const held = { ...CURVE, name: "held-out", of: "evaluation" as const };
    const data = { ...reply({ ...NONE, step: [1, 2, 3, 4], mean: { loss: [4, 2, null, 0] } }), evaluation: { ...NONE, step: [2, 4], mean: { loss: [3, 1] } } };
    const found = seriesOf({ ...CHART, curves: [CURVE, held] }, data, 2);
    expect(found.map((one) => one.y)).toEqual([[4, 3, null, 0], [3, 1]]);
  });

  it("orders a chart over another number by it", () => {
    const points = { ...NONE, step: [1, 2, 3], mean: { loss: [1, 2, 3], kl: [0.3, null, 0.1] } };
    expect(seriesOf({ ...CHART, x: "kl" }, reply(points))).toEqual([{ name: "training", x: [0.1, 0.3], y: [3, 1] }]);
  });

  it("draws over tokens and over minutes, and says where a step is there", () => {
    const points = { ...NONE, step: [1, 2, 3], mean: { loss: [3, 2, 1], "x:tokens": [100, 250, 400], "x:seconds": [30, 60, 120] } };
    expect(seriesOf(CHART, reply(points), 1, "tokens")[0]).toMatchObject({ x: [100, 250, 400], y: [3, 2, 1] });
    expect(seriesOf(CHART, reply(points), 2, "time")[0]).toMatchObject({ x: [0.5, 1, 2], y: [3, 2.5, 1.5] });
    expect(placeOfStep(2, reply(points), "time")).toBe(1);
    const without = { ...points, mean: { loss: [3, 2, 1], "x:tokens": [0, 0, 0] } };
    expect([seriesOf(CHART, reply(without), 1, "tokens"), placeOfStep(2, reply(without), "tokens")]).toEqual([[], null]);
  });
});

describe("runs that differ in seed", () => {
  it("have a mean with Student's interval over runs, where all of them are", () => {
    const runs = [
      { name: "a", x: [1, 2, 3], y: [1, 2, 3] },
      { name: "b", x: [1, 3], y: [2, 4] },
      { name: "c", x: [2, 3, 9], y: [4, 5, 9] },
    ];
    const found = meanOverSeeds(runs)!;
    // At 2: 2, 3 and 4; the deviation is 1, t of two degrees of freedom 4.303.
    expect([found.x, found.y]).toEqual([[2, 3], [3, 4]]);
    expect(found.high![0]).toBeCloseTo(3 + 4.303 / Math.sqrt(3), 6);
    expect(found.low![0]).toBeCloseTo(3 - 4.303 / Math.sqrt(3), 6);
  });

  it("is itself for one run, and nothing where they do not meet", () => {
    const one = { name: "a", x: [1, 2], y: [1, null] };
    expect(meanOverSeeds([one])).toBe(one);
    expect(meanOverSeeds([one, { name: "b", x: [5], y: [1] }])).toBeNull();
    expect(meanOverSeeds([])).toBeNull();
  });
});
