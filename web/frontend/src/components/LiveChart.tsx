import "uplot/dist/uPlot.min.css";
import "./LiveChart.css";

import { ActionIcon, Group, Text, Tooltip, useComputedColorScheme } from "@mantine/core";
import { IconChartLine, IconTable } from "@tabler/icons-react";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import uPlot from "uplot";

import { t } from "../i18n";
import { curveColour, LINE_COLOURS as LINES } from "./chartColours";
import { ChartTable } from "./ChartTable";
import { aligned, labels, formatNumber, summary, type Aligned, type ChartSeries } from "./chartData";
import { chartCsv, chartSvg } from "./chartExport";
import { positive, ticks, type ChartView } from "./chartScale";
import { ExportMenu } from "./ExportMenu";

const HEIGHT = 190;
/** Distances of labels along an axis of steps. */
const WHOLE = [1, 2, 5].flatMap((first) => Array.from({ length: 9 }, (_, zeros) => first * 10 ** zeros)).sort((a, b) => a - b);

interface Mark {
  x: number;
  /** The step, where the axis along is another. */
  step?: number;
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
  /** Axes and zoom; with `onZoom` the part that was dragged over is the caller's to keep. */
  view?: ChartView;
  onZoom?: (zoom: [number, number] | null) => void;
}

const PLAIN: ChartView = {};

/** Curves that may grow while they are looked at, in the colours of the theme, with a table of the same numbers. */
export function LiveChart({ title, series, unit = "", share = false, note = "", xLabel = t("step"), ...more }: LiveChartProps) {
  const { reference = null, moments = [], dots = false, together, view = PLAIN, onZoom } = more;
  const scheme = useComputedColorScheme("light");
  const [asTable, setAsTable] = useState(false);
  const [index, setPlace] = useState<number | null>(null);
  const id = useId();
  const [ownZoom, setOwnZoom] = useState<[number, number] | null>(null);
  const zoom = onZoom === undefined ? ownZoom : (view.zoom ?? null);
  const { logX = false, logY = false } = view;
  const points = useMemo(() => aligned(positive(series, { logX, logY })), [series, logX, logY]);
  const colour = (number: number) => curveColour(scheme, series[number]!.colour ?? number);
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
        <Group gap={2} wrap="nowrap">
        <ExportMenu
          title={title}
          csv={() => chartCsv({ series, xLabel })}
          svg={() => chartSvg({ title, unit, series, share, xLabel, dots, reference, moments, logX, logY, zoom }, scheme)}
        />
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
      </Group>
      {asTable ? (
        <ChartTable title={title} series={series} found={points} share={share} xLabel={xLabel} />
      ) : (
        <>
          <Canvas
            label={summary(title, series, share, xLabel)}
            found={points}
            names={series.map((one) => `${one.name}/${one.dashed === true}/${one.colour ?? ""}`).join("\n")}
            look={{ scheme, share, dots, whole: xLabel === t("step"), logX, logY, reference: reference?.value ?? null, colours: series.map((_, number) => colour(number)), dashed: series.map((one) => one.dashed === true) }}
            moments={moments}
            together={together}
            zoom={zoom}
            onZoom={onZoom ?? setOwnZoom}
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
          {t("Step {{x}}: {{moment}}.", { x: formatNumber(moment.step ?? moment.x), moment: moment.text })}
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
  logX: boolean;
  logY: boolean;
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
  zoom: [number, number] | null;
  onZoom: (zoom: [number, number] | null) => void;
  onPlace: (index: number | null) => void;
}

function Canvas({ label, found: points, names, look, moments, together, zoom, onZoom, onPlace }: CanvasProps) {
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef({ found: points, look, moments, zoom, onZoom, onPlace });
  useEffect(() => {
    latest.current = { found: points, look, moments, zoom, onZoom, onPlace };
  });
  const banded = points.places.map((index) => index.low !== null).join();
  useEffect(() => {
    const element = holder.current!;
    const plot = new uPlot(options(element.clientWidth, latest, together), latest.current.found.data, element);
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
  }, [names, banded, look.scheme, look.share, look.logX, look.logY, look.reference, together]);
  const [from, to] = zoom ?? [null, null];
  useEffect(() => {
    chart.current?.setData(points.data, from === null);
    if (from !== null && to !== null) chart.current?.setScale("x", { min: from, max: to });
  }, [points, names, banded, look.scheme, look.share, look.logX, look.logY, look.reference, together, from, to]);
  return <div ref={holder} role="img" aria-label={label} style={{ minHeight: HEIGHT }} onPointerLeave={() => onPlace(null)} />;
}

type Latest = { current: Pick<CanvasProps, "found" | "look" | "moments" | "zoom" | "onZoom" | "onPlace"> };

/** What the chart looks like now; what changes while it is shown is read through `latest` when it is drawn. */
function options(width: number, latest: Latest, together: string | undefined): uPlot.Options {
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
      x: { time: false, ...(look.logX ? { distr: 3 as const, range: (_: uPlot, low: number, high: number) => logRange(low, high) } : {}) },
      y: look.logY ? { distr: 3, range: (_, low, high) => logRange(low, high, look.reference) } : { range: (_, low, high) => room(low, high, look) },
    },
    axes: [
      { ...axis, size: 26, ...(look.logX ? logAxis(false) : { values: (_: uPlot, places: number[]) => labels(places), ...(look.whole ? { incrs: WHOLE } : {}) }) },
      { ...axis, size: 56, ...(look.logY ? logAxis(look.share) : { values: (_: uPlot, places: number[]) => labels(places, look.share) }) },
    ],
    hooks: {
      setCursor: [(chart) => latest.current.onPlace(chart.cursor.idx ?? null)],
      setSelect: [
        ({ select, posToVal }) => {
          if (select.width < 2) return;
          const zoom: [number, number] = [posToVal(select.left, "x"), posToVal(select.left + select.width, "x")];
          queueMicrotask(() => latest.current.onZoom(zoom));
        },
      ],
      ready: [(chart) => chart.over.addEventListener("dblclick", () => latest.current.onZoom(null))],
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

/** Where the values are all of one size, a power of ten around them. */
function logRange(low: number | null, high: number | null, reference: number | null = null): [number, number] {
  if (low === null || high === null || !(low > 0)) return [1, 10];
  const [from, to] = [Math.min(low, reference !== null && reference > 0 ? reference : low), Math.max(high, reference ?? high)];
  return to / from < 1.001 ? [from / 2, to * 2] : [from / (to / from) ** 0.04, to * (to / from) ** 0.04];
}

function logAxis(share: boolean): Pick<uPlot.Axis, "splits" | "values" | "filter"> {
  return {
    splits: (_, __, low, high) => ticks(low, high, true, 5),
    filter: (_, places) => places,
    values: (_, places) => places.map((place) => formatNumber(place, share)),
  };
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
  if (reference !== null && !(chart.scales["y"]?.distr === 3 && reference <= 0)) {
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
