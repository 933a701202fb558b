import type { ChartSeries } from "./chartData";

/** What is shown of a chart: logarithmic axes, and a part of the axis along. */
export interface ChartView {
  logX?: boolean;
  logY?: boolean;
  zoom?: [number, number] | null;
}

/** Without what a logarithmic axis has no place for: zero and below. */
export function positive(series: ChartSeries[], { logX = false, logY = false }: ChartView): ChartSeries[] {
  if (!logX && !logY) return series;
  const above = (values: (number | null)[], floor: number | null = null) => (logY ? values.map((value) => (value === null || value > 0 ? value : floor)) : values);
  return series.map((one) => {
    const first = logX ? one.x.findIndex((x) => x > 0) : 0;
    const from = first < 0 ? one.x.length : first;
    const cut = <Value>(values: Value[]) => (from === 0 ? values : values.slice(from));
    return {
      ...one,
      x: cut(one.x),
      y: above(cut(one.y)),
      ...(one.low === undefined || one.high === undefined ? {} : { low: above(cut(one.low), least(one)), high: above(cut(one.high)) }),
    };
  });
}

/** A band that goes below zero is drawn down to the least value that has a place. */
function least({ y, low = [] }: ChartSeries): number | null {
  const values = [...y, ...low].filter((value): value is number => value !== null && value > 0);
  return values.length === 0 ? null : values.reduce((a, b) => Math.min(a, b));
}

/** Round numbers of an axis, within its ends; of a logarithmic one powers of ten, with 2 and 5 between few. */
export function ticks(low: number, high: number, log: boolean, most = 7): number[] {
  if (!(high > low)) return [low];
  if (log) {
    const [first, last] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
    const factors = last - first <= 2 ? [1, 2, 5] : [1];
    const skip = Math.ceil((last - first) / most) || 1;
    const found: number[] = [];
    for (let power = first; power <= last; power += skip) for (const factor of factors) found.push(factor * 10 ** power);
    const within = found.filter((tick) => tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9));
    return within.length > 1 ? within : ticks(low, high, false, most); // all of one size
  }
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first;
  return Array.from({ length: count + 1 }, (_, number) => (first + number) * step);
}
