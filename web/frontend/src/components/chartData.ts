import uPlot from "uplot";

/** One curve, with its own places along the axis, and the bounds of its band. */
export interface ChartSeries {
  name: string;
  x: number[];
  y: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
  /** Number of its colour; curves of one run in several charts share it. */
  colour?: number;
  dashed?: boolean;
}

export interface Aligned {
  data: uPlot.AlignedData;
  /** Where the values, and the bounds, of each series are among `data`; null without a band. */
  places: { y: number; low: number | null; high: number | null }[];
}

/** All series over one axis. A place that a series does not have is left open, and its curve goes on over it. */
export function aligned(series: ChartSeries[]): Aligned {
  const places: Aligned["places"] = [];
  let place = 1;
  const tables = series.map((one) => {
    const banded = one.low !== undefined && one.high !== undefined;
    places.push({ y: place, low: banded ? place + 1 : null, high: banded ? place + 2 : null });
    place += banded ? 3 : 1;
    return (banded ? [one.x, one.y, one.low, one.high] : [one.x, one.y]) as uPlot.AlignedData;
  });
  return { data: tables.length === 1 ? tables[0]! : uPlot.join(tables), places };
}

/** Four digits, as many as are read; a share in per cent. */
export function shown(value: number | null | undefined, share = false): string {
  if (value == null || !Number.isFinite(value)) return "-";
  if (share) return `${(100 * value).toFixed(1)} %`;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: 4 });
}

/** In words, for those who do not see the curves. */
export function summary(title: string, series: ChartSeries[], share: boolean, xLabel: string): string {
  const told = series.map((one) => {
    const first = one.y.findIndex((value) => value !== null);
    const last = one.y.findLastIndex((value) => value !== null);
    if (first < 0) return `${one.name}: nothing yet`;
    const from = `${shown(one.y[first], share)} at ${shown(one.x[first])}`;
    return `${one.name}: ${first === last ? from : `from ${from} to ${shown(one.y[last], share)} at ${shown(one.x[last])}`}`;
  });
  return `${title} by ${xLabel}. ${told.join(". ")}.`;
}

/** At most `most` numbers from 0 to count - 1, evenly spread, the first and the last among them. */
export function spread(count: number, most: number): number[] {
  if (count <= most) return Array.from({ length: count }, (_, number) => number);
  return Array.from({ length: most }, (_, number) => Math.round((number * (count - 1)) / (most - 1)));
}
