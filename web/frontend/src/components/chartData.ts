import uPlot from "uplot";
import { minus } from "../format/figure";
import { NONE } from "../format/none";
import { percent } from "../format/percent";
import { numberText, t } from "../i18n";

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
  let position = 1;
  const tables = series.map((one) => {
    const banded = one.low !== undefined && one.high !== undefined;
    places.push({ y: position, low: banded ? position + 1 : null, high: banded ? position + 2 : null });
    position += banded ? 3 : 1;
    return (banded ? [one.x, one.y, one.low, one.high] : [one.x, one.y]) as uPlot.AlignedData;
  });
  const [first] = series;
  const alike = first !== undefined && series.every(({ x }) => x.length === first.x.length && x.every((place, index) => place === first.x[index]));
  // Runs of one length have the same steps: joining fifty of them takes seconds.
  return { data: alike ? ([first.x, ...tables.flatMap((table) => table.slice(1))] as uPlot.AlignedData) : uPlot.join(tables), places };
}

/** Powers of ten, with the point or the comma of the language. */
function exponent(value: number, digits: number): string {
  return minus(value.toExponential(digits)).replace(".", numberText(0.5).slice(1, 2));
}

/** Four digits, as many as are read; a share in per cent. */
export function formatNumber(value: number | null | undefined, share = false): string {
  if (value == null || !Number.isFinite(value)) return NONE;
  if (share) return minus(percent(value));
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return minus(numberText(value));
  if (size < 1e-3 || size >= 1e6) return exponent(value, 2);
  return minus(numberText(value, { maximumSignificantDigits: 4 }));
}

/** In words, for those who do not see the curves. */
export function summary(title: string, series: ChartSeries[], share: boolean, xLabel: string): string {
  const columns = series.map((one) => {
    const first = one.y.findIndex((value) => value !== null);
    const last = one.y.findLastIndex((value) => value !== null);
    if (first < 0) return t("{{name}}: nothing yet", { name: one.name });
    const from = t("{{y}} at {{x}}", { y: formatNumber(one.y[first], share), x: formatNumber(one.x[first]) });
    return `${one.name}: ${first === last ? from : t("from {{from}} to {{y}} at {{x}}", { from, y: formatNumber(one.y[last], share), x: formatNumber(one.x[last]) })}`;
  });
  return t("{{title}} by {{xLabel}}. {{columns}}.", { title, xLabel, columns: columns.join(". ") });
}

/** At most `most` numbers from 0 to count - 1, evenly spread, the first and the last among them. */
export function spread(count: number, most: number): number[] {
  if (count <= most) return Array.from({ length: count }, (_, number) => number);
  return Array.from({ length: most }, (_, number) => Math.round((number * (count - 1)) / (most - 1)));
}

/** The labels of an axis: all with the digits that tell one from the next. */
export function labels(ticks: number[], share = false): string[] {
  const factor = share ? 100 : 1;
  const gap = ticks.length > 1 ? Math.abs(ticks[1]! - ticks[0]!) * factor : 1;
  const most = Math.max(...ticks.map((tick) => Math.abs(tick * factor)), 0);
  const unit = share ? " %" : "";
  if (!share && ((gap < 1e-4 && most < 0.1) || most >= 1e7)) {
    const precision = Math.min(Math.max(Math.floor(Math.log10(most / gap)) + 1, 1), 6);
    return ticks.map((tick) => (tick === 0 ? "0" : exponent(tick, precision)));
  }
  if (!share && most >= 1e5 && gap >= 1e3) return ticks.map((tick) => minus(numberText(tick, { notation: "compact", maximumFractionDigits: 2 })));
  let digits = 0;
  while (digits < 8 && !isWhole(gap * 10 ** digits)) digits += 1;
  return ticks.map((tick) => minus(numberText(tick * factor, { minimumFractionDigits: digits, maximumFractionDigits: digits })) + unit);
}

/** But for what subtracting ticks costs. */
function isWhole(value: number): boolean {
  return value > 0.99 && Math.abs(value - Math.round(value)) < 0.01;
}
