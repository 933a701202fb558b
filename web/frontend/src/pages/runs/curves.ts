import { queryOptions, useQueries, useQuery, useQueryClient, type QueryClient, type UseQueryResult } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../api/client";
import { spread, type ChartSeries } from "../../components/chartData";

export type CurvesReply = Schemas["CurvesReply"];
export type Chart = Schemas["CurveChart"];
type Curve = Schemas["MetricCurve"];
type Points = Schemas["PointsReply"];

/** All points that were fetched, and what the newest reply said. */
export type Curves = CurvesReply;

const LIVE_MS = 2000;
const BEHIND_MS = 50;

/** The curves of a run, fetched again while it goes on: only what is new. */
export function useRunCurves(id: string, enabled = true): UseQueryResult<Curves> {
  return useQuery({ ...curvesQuery(useQueryClient(), id), enabled });
}

/** Of several runs. */
export function useManyCurves(ids: string[]): UseQueryResult<Curves>[] {
  const queries = useQueryClient();
  return useQueries({ queries: ids.map((id) => curvesQuery(queries, id)) });
}

function curvesQuery(queries: QueryClient, id: string) {
  const key = ["run", id, "curves"];
  return queryOptions<Curves>({
    queryKey: key,
    structuralSharing: false,
    gcTime: 60_000,
    queryFn: async ({ signal }) => {
      const before = queries.getQueryData<Curves>(key);
      const query = before === undefined ? {} : { since: before.state };
      const reply = await body(api.GET("/api/runs/{run_id}/curves", { params: { path: { run_id: id }, query }, signal }));
      return merged(before, reply);
    },
    refetchInterval: ({ state: { data } }) => (data === undefined ? false : data.behind ? BEHIND_MS : data.running ? LIVE_MS : false),
  });
}

/** A reply's points put behind those of the replies before it. */
export function merged(before: Curves | undefined, reply: CurvesReply): Curves {
  if (before === undefined || reply.anew) return reply;
  return { ...reply, step: joined(before.step, reply.step), evaluation: joined(before.evaluation, reply.evaluation) };
}

function joined(before: Points, after: Points): Points {
  if (after.first === 0) return after;
  const columns = (name: "mean" | "low" | "high") => {
    const keys = new Set([...Object.keys(before[name]), ...Object.keys(after[name])]);
    return Object.fromEntries([...keys].map((key) => [key, [...start(before[name][key], after.first), ...start(after[name][key], after.step.length)]]));
  };
  const step = [...before.step.slice(0, after.first), ...after.step];
  return { ...after, first: 0, step, mean: columns("mean"), low: columns("low"), high: columns("high") };
}

/** So many values; those that are lacking are gaps. */
function start(values: (number | null)[] | undefined, count: number): (number | null)[] {
  return Array.from({ length: count }, (_, index) => values?.[index] ?? null);
}

/** What curves of a training are drawn over. */
export const X_AXES = ["step", "tokens", "time"] as const;
export type XAxis = (typeof X_AXES)[number];
const SECONDS_A_MINUTE = 60;

/** Tokens, or minutes of training, up to each point; undefined where the run does not say. */
function axisOf(points: Points, axis: XAxis): (number | null)[] | undefined {
  if (axis === "step") return points.step;
  const values = points.mean[axis === "tokens" ? "x:tokens" : "x:seconds"];
  if (values === undefined || !(values.at(-1)! > 0)) return undefined;
  return axis === "time" ? values.map((value) => (value === null ? null : value / SECONDS_A_MINUTE)) : values;
}

/** Where a step is on that axis. */
export function placeOfStep(step: number, curves: Curves, axis: XAxis): number | null {
  if (axis === "step") return step;
  const index = curves.step.step.findIndex((one) => one >= step);
  return index < 0 ? null : (axisOf(curves.step, axis)?.[index] ?? null);
}

/** The series of a chart; of steps, the mean of so many points. Where a point stands for several rows, the band of a curve without one is their bounds. */
export function seriesOf(chart: Chart, curves: Curves, smoothing = 1, axis: XAxis = "step"): ChartSeries[] {
  return chart.curves.flatMap((curve) => {
    const points = curve.of === "step" ? curves.step : curves.evaluation;
    const x = chart.x === "step" ? axisOf(points, axis) : points.mean[chart.x];
    const y = scaled(points.mean[curve.key], curve.scale);
    if (x === undefined || y === undefined) return [];
    const series = { name: curve.name, ...along(x, windowed(y, Math.max(Math.ceil(curve.window / points.width), curve.of === "step" && chart.x === "step" ? smoothing : 1)), band(curve, points, y, chart.curves.length <= 2)) };
    return series.y.some((value) => value !== null) ? [series] : [];
  });
}

/** The last value of the line across. */
export function referenceOf(chart: Chart, curves: Curves): { name: string; value: number } | null {
  if (chart.reference === null) return null;
  const points = chart.reference.of === "step" ? curves.step : curves.evaluation;
  const value = points.mean[chart.reference.key]?.findLast((one) => one !== null);
  return value == null ? null : { name: chart.reference.name, value: value * chart.reference.scale };
}

/** `bounded`: whether there is room for the bounds of rows that share a point. */
function band(curve: Curve, points: Points, y: (number | null)[], bounded: boolean): [(number | null)[], (number | null)[]] | null {
  if (curve.spread !== null) {
    const spread = points.mean[curve.spread];
    const bound = (sign: number) => y.map((value, index) => (value === null ? null : value + sign * curve.scale * (spread?.[index] ?? 0)));
    return [bound(-1), bound(1)];
  }
  const [low, high] =
    curve.low !== null && curve.high !== null
      ? [points.mean[curve.low], points.mean[curve.high]]
      : curve.window === 1 && bounded
        ? [points.low[curve.key], points.high[curve.key]]
        : [undefined, undefined];
  const bounds = [scaled(low, curve.scale), scaled(high, curve.scale)];
  return bounds[0] === undefined || bounds[1] === undefined ? null : [bounds[0], bounds[1]];
}

function scaled(values: (number | null)[] | undefined, factor: number): (number | null)[] | undefined {
  return factor === 1 ? values : values?.map((value) => (value === null ? null : value * factor));
}

/** Mean of each value and those before it, `window` in all; a gap stays one. */
function windowed(values: (number | null)[], window: number): (number | null)[] {
  if (window <= 1) return values;
  let sum = 0;
  let count = 0;
  const take = (value: number | null | undefined, sign: 1 | -1) => {
    if (value == null) return;
    sum += sign * value;
    count += sign;
  };
  return values.map((value, index) => {
    take(value, 1);
    if (index >= window) take(values[index - window], -1);
    return value === null || count === 0 ? null : sum / count;
  });
}

/** In the order of the axis, which a chart of another number than the step does not have. */
function along(x: (number | null)[], y: (number | null)[], bounds: [(number | null)[], (number | null)[]] | null): Omit<ChartSeries, "name"> {
  const rising = x.every((value, index) => value !== null && (index === 0 || value > (x[index - 1] as number)));
  if (rising) return { x: x as number[], y, ...(bounds === null ? {} : { low: bounds[0], high: bounds[1] }) };
  const order = x.map((_, index) => index).filter((index) => x[index] !== null);
  order.sort((a, b) => (x[a] as number) - (x[b] as number));
  return { x: order.map((index) => x[index] as number), y: order.map((index) => y[index] ?? null) };
}

/** 97.5 % quantiles of Student's t for 1, 2, ... degrees of freedom. */
const T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042];
const MOST_PLACES = 1000;

/**
 * The mean of runs that differ in seed, with its 95 % interval over the runs: they are the unit, however many points each
 * has. Only where all of them have values; between its points a run's curve is a line. One run is itself.
 */
export function meanOverSeeds(runs: ChartSeries[]): ChartSeries | null {
  const curves = runs.map((run) => run.x.map((x, index) => [x, run.y[index]] as const).filter((point): point is [number, number] => point[1] != null));
  if (runs.length === 1) return runs[0]!;
  if (runs.length === 0 || curves.some((curve) => curve.length === 0)) return null;
  const [from, to] = [Math.max(...curves.map((curve) => curve[0]![0])), Math.min(...curves.map((curve) => curve.at(-1)![0]))];
  const all = [...new Set(curves.flatMap((curve) => curve.map(([x]) => x)))].filter((x) => x >= from && x <= to).sort((a, b) => a - b);
  const x = spread(all.length, MOST_PLACES).map((index) => all[index]!);
  const values = curves.map((curve) => interpolated(curve, x));
  const quantile = T[runs.length - 2] ?? 1.96;
  const mean = x.map((_, index) => values.reduce((sum, run) => sum + run[index]!, 0) / runs.length);
  const half = x.map((_, index) => quantile * Math.sqrt(values.reduce((sum, run) => sum + (run[index]! - mean[index]!) ** 2, 0) / (runs.length - 1) / runs.length));
  const bound = (sign: number) => mean.map((value, index) => value + sign * half[index]!);
  return x.length === 0 ? null : { name: runs[0]!.name, x, y: mean, low: bound(-1), high: bound(1) };
}

/** Of points in ascending order, at ascending places within them. */
function interpolated(points: [number, number][], places: number[]): number[] {
  let next = 0;
  return places.map((place) => {
    while (points[next]![0] < place) next += 1;
    const [x, y] = points[next]!;
    if (x === place || next === 0) return y;
    const [before, value] = points[next - 1]!;
    return value + ((y - value) * (place - before)) / (x - before);
  });
}
