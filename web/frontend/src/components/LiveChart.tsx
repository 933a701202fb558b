import "uplot/dist/uPlot.min.css";
import "./LiveChart.css";

import { ActionIcon, Group, Text, Tooltip, useComputedColorScheme } from "@mantine/core";
import { IconChartLine, IconTable } from "@tabler/icons-react";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { t } from "../i18n";
import { ChartTable } from "./ChartTable";
import { aligned, labels, formatNumber, summary, type Aligned, type ChartSeries } from "./chartData";

const COLOURS = {
  light: ["#2f6db5", "#b35a12", "#2e8259", "#8a4fa3", "#b03a4c", "#6b6f2a", "#20777f", "#7a5c46"],
  dark: ["#74a9e6", "#e59a55", "#66bd92", "#c293d8", "#e4808f", "#b9bd68", "#63c2ca", "#c4a48c"],
};
const LINES = { light: { grid: "#e6e8ea", text: "#4b5563", mark: "#b03a4c" }, dark: { grid: "#33373d", text: "#b4bac2", mark: "#e4808f" } };
const HEIGHT = 190;
/** Distances of labels along an axis of steps. */
const WHOLE = [1, 2, 5].flatMap((first) => Array.from({ length: 9 }, (_, zeros) => first * 10 ** zeros)).sort((a, b) => a - b);

interface Mark {
  x: number;
  text: string;
  ordinary?: boolean;
}

export interface LiveChartProps {
  title: string;
  series: ChartSeries[];
  unit?: string;
  share?: boolean;
  note?: string;
  xLabel?: string;
  /** A line across to compare with. */
  reference?: { name: string; value: number } | null;
  /** Lines down, with what happened there; ordinary ones are named in the chart alone. */
  moments?: Mark[];
  /** Draw places and no line between them, where neighbours did not follow one another. */
  dots?: boolean;
  /** Charts of one name move their cursors together. */
  together?: string;
}

/** Curves that may grow while they are looked at, in the colours of the theme, with a table of the same numbers. */
export function LiveChart({ title, series, unit = "", share = false, note = "", xLabel = "step", ...more }: LiveChartProps) {
  const { reference = null, moments = [], dots = false, together } = more;
  const scheme = useComputedColorScheme("light");
  const [asTable, setAsTable] = useState(false);
  const [index, setPlace] = useState<number | null>(null);
  const id = useId();
  const points = useMemo(() => aligned(series), [series]);
  const colour = (number: number) => COLOURS[scheme][(series[number]!.colour ?? number) % COLOURS[scheme].length]!;
  const at = index ?? null;
  return (
    <figure className="live-chart panel" aria-labelledby={id}>
      <Group justify="space-between" wrap="nowrap" align="start" gap="xs">
        <Text id={id} component="figcaption" size="sm" fw={600}>
          {title}
          {unit !== "" && (
            <Text span size="xs" className="dim" fw={400}>
              , {unit}
            </Text>
          )}
        </Text>
        <Tooltip label={asTable ? t("Curves") : t("Numbers")}>
          <ActionIcon
            variant="subtle"
            color="gray"
            size="sm"
            aria-label={`${title}: ${asTable ? t("curves") : t("table of numbers")}`}
            aria-pressed={asTable}
            onClick={() => setAsTable(!asTable)}
          >
            {asTable ? <IconChartLine size={16} /> : <IconTable size={16} />}
          </ActionIcon>
        </Tooltip>
      </Group>
      {asTable ? (
        <ChartTable title={title} series={series} found={points} share={share} xLabel={xLabel} />
      ) : (
        <>
          <Canvas
            label={summary(title, series, share, xLabel)}
            found={points}
            names={series.map((one) => `${one.name}/${one.dashed === true}/${one.colour ?? ""}`).join("\n")}
            look={{ scheme, share, dots, whole: xLabel === "step", reference: reference?.value ?? null, colours: series.map((_, number) => colour(number)), dashed: series.map((one) => one.dashed === true) }}
            moments={moments}
            together={together}
            onPlace={setPlace}
          />
          <Group gap="0 12px" mt={2} aria-hidden>
            {series.map((one, number) => (
              <Text key={one.name} size="xs">
                <span className="live-chart-key" style={{ borderColor: colour(number), borderTopStyle: one.dashed ? "dashed" : "solid" }} />
                {one.name}{" "}
                {/* The last of a cloud of dots is the one farthest right, not the newest. */}
                {(at !== null || !dots) && <b>{formatNumber(at === null ? last(one.y) : (points.data[points.places[number]!.y]?.[at] ?? null), share)}</b>}
              </Text>
            ))}
            {reference !== null && (
              <Text size="xs" className="dim">
                <span className="live-chart-key" style={{ borderTopStyle: "dotted", borderColor: LINES[scheme].text }} />
                {reference.name} <b>{formatNumber(reference.value, share)}</b>
              </Text>
            )}
            {at !== null && (
              <Text size="xs" className="dim">
                {[`${xLabel} ${formatNumber(points.data[0]?.[at])}`, ...marksAt(moments, points, at)].join(": ")}
              </Text>
            )}
          </Group>
        </>
      )}
      {moments.filter(({ ordinary }) => ordinary !== true).map((moment) => (
        <Text key={`${moment.x} ${moment.text}`} size="xs" c={scheme === "dark" ? "red.3" : "red.9"}>
          {t("Step {{x}}: {{moment}}.", { x: formatNumber(moment.x), moment: moment.text })}
        </Text>
      ))}
      {note !== "" && (
        <Text size="xs" className="dim">
          {note}
        </Text>
      )}
    </figure>
  );
}

/** What happened since the point before this one. */
function marksAt(moments: Mark[], { data }: Aligned, at: number): string[] {
  const [from, to] = [data[0][at - 1] ?? -Infinity, data[0][at] ?? Infinity];
  return [...new Set(moments.filter(({ x }) => x > from && x <= to).map(({ text }) => text))];
}

function last(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

interface Look {
  scheme: "light" | "dark";
  share: boolean;
  dots: boolean;
  /** Whether there is nothing between 1 and 2 along the axis. */
  whole: boolean;
  reference: number | null;
  colours: string[];
  dashed: boolean[];
}

interface CanvasProps {
  label: string;
  found: Aligned;
  /** What makes another drawing of it, not only other numbers. */
  names: string;
  look: Look;
  moments: Mark[];
  together: string | undefined;
  onPlace: (index: number | null) => void;
}

function Canvas({ label, found: points, names, look, moments, together, onPlace }: CanvasProps) {
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef({ found: points, look, moments, onPlace });
  const zoomed = useRef(false);
  useEffect(() => {
    latest.current = { found: points, look, moments, onPlace };
  });
  const banded = points.places.map((index) => index.low !== null).join();
  useEffect(() => {
    const element = holder.current!;
    zoomed.current = false;
    const plot = new uPlot(options(element.clientWidth, latest, zoomed, together), latest.current.found.data, element);
    chart.current = plot;
    const watcher = new ResizeObserver(() => {
      if (element.clientWidth > 0 && element.clientWidth !== plot.width) plot.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      plot.destroy();
      chart.current = null;
    };
  }, [names, banded, look.scheme, look.share, look.reference, together]);
  useEffect(() => {
    chart.current?.setData(points.data, !zoomed.current);
    if (zoomed.current) chart.current?.redraw();
  }, [points]);
  return <div ref={holder} role="img" aria-label={label} style={{ minHeight: HEIGHT }} onPointerLeave={() => onPlace(null)} />;
}

type Latest = { current: { found: Aligned; look: Look; moments: Mark[]; onPlace: (index: number | null) => void } };

/** What the chart looks like now; what changes while it is shown is read through `latest` when it is drawn. */
function options(width: number, latest: Latest, zoomed: { current: boolean }, together: string | undefined): uPlot.Options {
  const { found: points, look } = latest.current;
  const lines = LINES[look.scheme];
  const series: uPlot.Series[] = [{}];
  const bands: uPlot.Band[] = [];
  points.places.forEach((index, number) => {
    const colour = look.colours[number]!;
    series.push({
      stroke: colour,
      width: 1.6,
      spanGaps: true,
      dash: look.dashed[number] ? [5, 4] : undefined,
      ...(look.dots ? { paths: () => null } : {}),
      points: { show: look.dots || sparse, size: 5, fill: colour },
    });
    if (index.low !== null && index.high !== null) {
      series.push({ width: 0, points: { show: false } }, { width: 0, points: { show: false } });
      bands.push({ series: [index.high, index.low], fill: `${colour}26` });
    }
  });
  const axis: uPlot.Axis = {
    stroke: lines.text,
    font: "11px 'Inter Variable', sans-serif",
    grid: { stroke: lines.grid, width: 1 },
    ticks: { stroke: lines.grid, width: 1, size: 4 },
  };
  return {
    width: Math.max(width, 120),
    height: HEIGHT,
    padding: [8, 18, 0, 0],
    series,
    bands,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false }, ...(together === undefined ? {} : { sync: { key: together } }) },
    scales: {
      x: { time: false },
      y: { range: (_, low, high) => room(low, high, look) },
    },
    axes: [
      { ...axis, size: 26, values: (_, ticks) => labels(ticks), ...(look.whole ? { incrs: WHOLE } : {}) },
      { ...axis, size: 56, values: (_, ticks) => labels(ticks, look.share) },
    ],
    hooks: {
      setCursor: [(chart) => latest.current.onPlace(chart.cursor.idx ?? null)],
      setSelect: [() => (zoomed.current = true)],
      ready: [(chart) => chart.over.addEventListener("dblclick", () => (zoomed.current = false))],
      draw: [(chart) => drawLines(chart, lines, latest.current.look.reference, latest.current.moments)],
    },
  };
}

/** Points are marked where they are few. */
function sparse(chart: uPlot, number: number): boolean {
  const values = chart.data[number]!;
  let count = 0;
  for (const value of values) if (value != null && (count += 1) > 25) return false;
  return true;
}

/** The axis of values, with some space, which does not go past what there can be. */
function room(low: number | null, high: number | null, { reference, share }: Look): [number, number] {
  if (low === null || high === null) return [0, 1];
  const from = Math.min(low, reference ?? low);
  const to = Math.max(high, reference ?? high);
  const space = (to - from) * 0.06 || Math.abs(to) * 0.1 || 1;
  return [from >= 0 && from - space < 0 ? 0 : from - space, share && to <= 1 ? Math.min(1, to + space) : to + space];
}

function drawLines(chart: uPlot, lines: { text: string; mark: string }, reference: number | null, moments: Mark[]): void {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.setLineDash([4, 4]);
  ctx.lineWidth = devicePixelRatio;
  const line = (colour: string, from: [number, number], to: [number, number]) => {
    ctx.strokeStyle = colour;
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
  };
  if (reference !== null) {
    const y = chart.valToPos(reference, "y", true);
    line(lines.text, [bbox.left, y], [bbox.left + bbox.width, y]);
  }
  ctx.font = `${10 * devicePixelRatio}px 'Inter Variable', sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "top";
  let free = bbox.left; // a name is written to the left of its line, where the line before leaves room
  // Ordinary ones first, so that another one of the same step is seen.
  for (const { x: step, text, ordinary } of [...moments].sort((a, b) => Number(b.ordinary === true) - Number(a.ordinary === true))) {
    const x = chart.valToPos(step, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    line(ordinary === true ? lines.text : lines.mark, [x, bbox.top], [x, bbox.top + bbox.height]);
    if (ordinary !== true) continue;
    const gap = 3 * devicePixelRatio;
    ctx.fillStyle = lines.text;
    if (x - gap - ctx.measureText(text).width >= free) ctx.fillText(text, x - gap, bbox.top);
    free = Math.max(free, x + gap);
  }
  ctx.restore();
}
