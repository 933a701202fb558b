import { expect, it } from "vitest";

import { chartCsv, chartSvg, type DrawnChart } from "./chartExport";
import { positive, ticks } from "./chartScale";

const CHART: DrawnChart = {
  title: "Loss & <more>",
  unit: "nats",
  series: [
    { name: 'a, "b"', x: [1, 2, 4], y: [0.125, null, 3] },
    { name: "mean", x: [2, 4], y: [0, 1], low: [-1, 0.5], high: [1, 2] },
  ],
  share: false,
  xLabel: "step",
  dots: false,
  reference: { name: "chance", value: 0.5 },
  moments: [{ x: 2, text: "swap" }],
};
const parsed = (svg: string) => new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
const texts = (svg: string) => [...parsed(svg).querySelectorAll("text")].map((one) => one.textContent);
const places = (svg: string) => [...parsed(svg).querySelectorAll("polyline")].map((line) => line.getAttribute("points")!.split(" ").map((place) => place.split(",").map(Number)));

it("exports every number with all its digits, a row for each place", () => {
  expect(chartCsv(CHART)).toBe('step,"a, ""b""",mean,mean low,mean high\r\n1,0.125,,,\r\n2,,0,-1,1\r\n4,3,1,0.5,2\r\n');
});

it("draws a picture that says what the chart says", () => {
  const svg = chartSvg(CHART, "light");
  expect(parsed(svg).querySelector("parsererror")).toBeNull();
  expect(texts(svg)).toEqual(expect.arrayContaining(["Loss & <more>, nats", "step", 'a, "b"', "mean", "chance"]));
  const [first] = places(svg);
  expect(first).toHaveLength(2); // a gap is drawn over
  expect(parsed(svg).querySelectorAll("polygon")).toHaveLength(1);
});

it("draws what is seen: a part of it, logarithmic axes", () => {
  const [, mean] = places(chartSvg({ ...CHART, logY: true }, "dark"));
  expect(mean).toHaveLength(1); // zero has no place
  const line = (y: number[]) => places(chartSvg({ ...CHART, series: [{ name: "x", x: [1, 10, 100], y }], reference: null, logX: true, logY: true }, "light"))[0]!;
  const [a, b, c] = line([0.01, 0.1, 1]);
  expect([b![0]! - a![0]!, b![1]! - a![1]!]).toEqual([expect.closeTo(c![0]! - b![0]!, 1), expect.closeTo(c![1]! - b![1]!, 1)]);
  const zoomed = texts(chartSvg({ ...CHART, zoom: [3, 5] }, "light"));
  expect(zoomed).toEqual(expect.arrayContaining(["3.0", "5.0"]));
});

it("has round ticks within the axis", () => {
  expect(ticks(0, 1, false, 5)).toEqual([0, 0.2, 0.4, expect.closeTo(0.6), 0.8, 1]);
  expect(ticks(3, 4200, true)).toEqual([10, 100, 1000]);
  expect(ticks(0.66, 0.69, true)).toEqual([0.66, 0.665, 0.67, 0.675, 0.68, 0.685, 0.69].map((tick) => expect.closeTo(tick)));
  expect(ticks(0.3, 7, true)).toEqual([0.5, 1, 2, 5]);
  expect(ticks(1e-12, 1e12, true, 5)).toHaveLength(5);
});

it("leaves out what a logarithmic axis has no place for", () => {
  const series = [{ name: "s", x: [0, 1, 2], y: [5, 0, 2], low: [1, -1, 1], high: [6, 1, 3] }];
  expect(positive(series, { logX: true, logY: true })).toEqual([{ name: "s", x: [1, 2], y: [null, 2], low: [1, 1], high: [1, 3] }]);
  expect(positive(series, {})).toBe(series);
});
