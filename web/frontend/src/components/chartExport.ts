import { t } from "../i18n";
import { curveColour, LINE_COLOURS, type Scheme } from "./chartColours";
import { formatNumber, labels, type ChartSeries } from "./chartData";
import { positive, ticks, type ChartView } from "./chartScale";

export interface DrawnChart extends ChartView {
  title: string;
  unit: string;
  series: ChartSeries[];
  share: boolean;
  xLabel: string;
  dots: boolean;
  reference: { name: string; value: number } | null;
  moments: { x: number; text: string }[];
}

const WIDTH = 960;
const PLOT = { left: 84, right: 24, top: 54, height: 380 };
const LETTER = 7.2; // pixels that a letter of 13 px takes, no fewer

/** All points of all series: a row for each place along the axis, whole numbers as they are, every digit. */
export function chartCsv({ series, xLabel }: Pick<DrawnChart, "series" | "xLabel">): string {
  const rows = new Map<number, Map<string, number | null>>();
  const names = [xLabel];
  for (const { name, x, y, low, high } of series) {
    const columns = [[name, y], ...(low === undefined || high === undefined ? [] : [[t("{{name}} low", { name }), low], [t("{{name}} high", { name }), high]])] as [string, (number | null)[]][];
    for (const [column, values] of columns) {
      names.push(column);
      values.forEach((value, index) => {
        if (value === null) return;
        const place = x[index]!;
        if (!rows.has(place)) rows.set(place, new Map());
        rows.get(place)!.set(column, value);
      });
    }
  }
  const body = [...rows].sort(([a], [b]) => a - b).map(([place, values]) => [place, ...names.slice(1).map((name) => values.get(name) ?? "")]);
  return csvText([names, ...body]);
}

/** A cell with a comma, a quote or a line end is quoted (RFC 4180). */
export function csvText(rows: (string | number)[][]): string {
  const cell = (value: string | number) => (/[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

/** The chart as it is looked at: title, axes, curves with their bands, lines across and down, legend. */
export function chartSvg(chart: DrawnChart, scheme: Scheme): string {
  const { title, unit, share, xLabel, reference, dots, zoom = null, logX = false, logY = false } = chart;
  const lines = LINE_COLOURS[scheme];
  const series = positive(chart.series, chart);
  const [fromX, toX] = zoom ?? extent(series.flatMap((one) => one.x));
  const seen = series.flatMap((one) => [one.y, one.low ?? [], one.high ?? []].flatMap((values) => values.filter((_, index) => one.x[index]! >= fromX && one.x[index]! <= toX)));
  const [fromY, toY] = room(extent([...seen.filter((value) => value !== null), ...(reference === null || (logY && reference.value <= 0) ? [] : [reference.value])]), logY);
  const scale = (value: number, from: number, to: number, log: boolean) => (to === from ? 0.5 : log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from));
  const width = WIDTH - PLOT.left - PLOT.right;
  const bottom = PLOT.top + PLOT.height;
  const x = (value: number) => PLOT.left + width * scale(value, fromX, toX, logX);
  const y = (value: number) => bottom - PLOT.height * scale(value, fromY, toY, logY);
  const point = (index: number, one: ChartSeries, values: (number | null)[]) => (values[index] == null ? null : `${x(one.x[index]!).toFixed(2)},${y(values[index]!).toFixed(2)}`);
  const path = (one: ChartSeries, values: (number | null)[]) => one.x.map((_, index) => point(index, one, values)).filter((place) => place !== null);
  const parts: string[] = [];
  const [xs, ys] = [ticks(fromX, toX, logX, 9), ticks(fromY, toY, logY)];
  const names = (values: number[], log: boolean, shared: boolean) => (log ? values.map((value) => formatNumber(value, shared)) : labels(values, shared));
  names(ys, logY, share).forEach((label, index) => {
    const at = y(ys[index]!).toFixed(1);
    parts.push(`<path d="M${PLOT.left} ${at}H${WIDTH - PLOT.right}" stroke="${lines.grid}"/>`, text(PLOT.left - 8, Number(at) + 4, label, "end"));
  });
  names(xs, logX, false).forEach((label, index) => {
    const at = x(xs[index]!).toFixed(1);
    parts.push(`<path d="M${at} ${PLOT.top}V${bottom}" stroke="${lines.grid}"/>`, text(Number(at), bottom + 18, label, "middle"));
  });
  parts.push(text(PLOT.left + width / 2, bottom + 38, xLabel, "middle"));
  parts.push(`<clipPath id="plot"><rect x="${PLOT.left}" y="${PLOT.top}" width="${width}" height="${PLOT.height}"/></clipPath><g clip-path="url(#plot)">`);
  series.forEach((one, number) => {
    const colour = curveColour(scheme, one.colour ?? number);
    if (one.low !== undefined && one.high !== undefined) {
      const band = [...path(one, one.high), ...path(one, one.low).reverse()];
      if (band.length > 0) parts.push(`<polygon points="${band.join(" ")}" fill="${colour}" fill-opacity="0.15"/>`);
    }
    const places = path(one, one.y);
    if (!dots) parts.push(`<polyline points="${places.join(" ")}" fill="none" stroke="${colour}" stroke-width="2" stroke-linejoin="round"${one.dashed ? ' stroke-dasharray="7 5"' : ""}/>`);
    if (dots || places.length <= 25) parts.push(...places.map((place) => `<circle cx="${place.split(",")[0]}" cy="${place.split(",")[1]}" r="3" fill="${colour}"/>`));
  });
  if (reference !== null && !(logY && reference.value <= 0)) parts.push(`<path d="M${PLOT.left} ${y(reference.value).toFixed(1)}h${width}" stroke="${lines.text}" stroke-dasharray="4 4"/>`);
  for (const moment of chart.moments.filter((one) => one.x >= fromX && one.x <= toX))
    parts.push(`<path d="M${x(moment.x).toFixed(1)} ${PLOT.top}v${PLOT.height}" stroke="${lines.mark}" stroke-dasharray="4 4"><title>${escaped(moment.text)}</title></path>`);
  parts.push("</g>");
  const keys = [...series.map((one, number) => ({ name: one.name, colour: curveColour(scheme, one.colour ?? number), dash: one.dashed === true })), ...(reference === null ? [] : [{ name: reference.name, colour: lines.text, dash: true }])];
  let [left, top] = [PLOT.left, bottom + 64];
  for (const { name, colour, dash } of keys) {
    const needs = 34 + LETTER * name.length;
    if (left > PLOT.left && left + needs > WIDTH - PLOT.right) [left, top] = [PLOT.left, top + 20];
    parts.push(`<path d="M${left.toFixed(1)} ${top - 4}h20" stroke="${colour}" stroke-width="3"${dash ? ' stroke-dasharray="6 4"' : ""}/>`, text(left + 26, top, name));
    left += needs;
  }
  const height = top + 20;
  const heading = `<text x="${PLOT.left}" y="30" font-size="17" font-weight="600">${escaped(title)}${unit === "" ? "" : `<tspan font-size="13" font-weight="400">, ${escaped(unit)}</tspan>`}</text>`;
  return picture({ width: WIDTH, height, ink: lines.text, paper: lines.paper, title }, heading + parts.join(""));
}

/** An SVG file of the parts. */
function picture({ width, height, ink, paper, title }: { width: number; height: number; ink: string; paper: string; title: string }, parts: string): string {
  const look = { fontFamily: "Inter, 'Inter Variable', Helvetica, Arial, sans-serif" };
  const root = [`xmlns="http://www.w3.org/2000/svg"`, `width="${width}"`, `height="${height}"`, `viewBox="0 0 ${width} ${height}"`, `font-family="${look.fontFamily}"`, `font-size="13"`, `fill="${ink}"`];
  return `<svg ${root.join(" ")}><title>${escaped(title)}</title><rect width="100%" height="100%" fill="${paper}"/>${parts}</svg>\n`;
}

function text(x: number, y: number, content: string, anchor = "start"): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor}">${escaped(content)}</text>`;
}

function escaped(content: string): string {
  return content.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function extent(values: number[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];
  return low <= high ? [low, high] : [1, 10];
}

function room([low, high]: [number, number], log: boolean): [number, number] {
  if (log) return low === high ? [low / 2, high * 2] : [low / (high / low) ** 0.04, high * (high / low) ** 0.04];
  const space = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low >= 0 && low - space < 0 ? 0 : low - space, high + space];
}

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "opacity", "font-size", "font-family", "font-weight", "text-anchor", "dominant-baseline"];
const PADDING = 16;

/** An SVG that the page draws itself, with the look that its stylesheets give it, a title and its legend. */
export function drawnSvg(drawn: SVGSVGElement, title: string, legend: { name: string; colour: string }[]): string {
  const copy = drawn.cloneNode(true) as SVGSVGElement;
  const originals = [drawn, ...drawn.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, index) => {
    const style = getComputedStyle(originals[index]!);
    element.setAttribute("style", STYLES.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
    element.removeAttribute("class");
  });
  const { width, height } = drawn.getBoundingClientRect();
  const look = getComputedStyle(drawn);
  const paper = getComputedStyle(document.body).backgroundColor;
  copy.setAttribute("x", String(PADDING));
  copy.setAttribute("y", "44");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  let left = PADDING;
  const keys = legend.map(({ name, colour }) => {
    const key = `<circle cx="${left + 5}" cy="${height + 58}" r="5" fill="${escaped(colour)}"/>${text(left + 16, height + 62, name)}`;
    left += 34 + LETTER * name.length;
    return key;
  });
  const [wide, high] = [Math.max(width, left) + 2 * PADDING, height + (keys.length > 0 ? 80 : 56)];
  const heading = `<text x="${PADDING}" y="28" font-size="16" font-weight="600">${escaped(title)}</text>`;
  return picture({ width: wide, height: high, ink: look.color, paper, title }, heading + new XMLSerializer().serializeToString(copy) + keys.join(""));
}

/** The picture with twice as many pixels. */
export async function pngOf(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [2 * image.naturalWidth, 2 * image.naturalHeight];
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob === null ? reject(new Error("toBlob")) : resolve(blob)), "image/png"));
}

/** Hand a file to the person. */
export function download(name: string, content: Blob | string, type = "text/plain"): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: `${type};charset=utf-8` }));
  link.download = name.replace(/[^\p{L}\p{N}._ -]+/gu, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
