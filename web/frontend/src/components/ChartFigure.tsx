import "./ChartFigure.css";

import { Group, Switch, Text } from "@mantine/core";
import { useId, useRef, useState, type ReactNode } from "react";
import { flushSync } from "react-dom";

import { t } from "../i18n";
import { csvText, drawnSvg } from "./chartExport";
import { ExportMenu } from "./ExportMenu";
import { Wide } from "./Wide";

/**
 * A chart with a name and, in its place when asked for, a table of the same figures: what a chart shows to the eye is
 * there for everybody. `height`, in px, for a chart that is one image; without it the chart says itself what it is.
 */
export function ChartFigure({
  title,
  height,
  table,
  children,
}: {
  title: string;
  height?: number;
  table: ReactNode;
  children: ReactNode;
}) {
  const id = useId();
  const [asTable, setAsTable] = useState(false);
  const figure = useRef<HTMLElement>(null);
  const csv = () => {
    flushSync(() => setAsTable(true)); // the numbers are in the table alone
    const text = tableCsv(figure.current!);
    flushSync(() => setAsTable(asTable));
    return text;
  };
  const chart =
    height === undefined ? (
      children
    ) : (
      <div className="chart-image" style={{ height, width: "100%" }} role="img" aria-labelledby={id}>
        {children}
      </div>
    );
  return (
    <figure aria-labelledby={id} style={{ margin: 0 }} ref={figure}>
      <Group justify="space-between" wrap="nowrap" align="start" gap="sm" mb={4}>
        <Text component="figcaption" id={id} size="sm" fw={600}>
          {title}
        </Text>
        <Group gap="xs" wrap="nowrap" style={{ flexShrink: 0 }}>
        <ExportMenu title={title} csv={csv} {...(asTable ? {} : { svg: () => pictureOf(figure.current!, title) })} />
        <Switch
          size="xs"
          label={t("Table")}
          aria-label={t("Table of: {{title}}", { title })}
          checked={asTable}
          onChange={(event) => setAsTable(event.currentTarget.checked)}
        />
        </Group>
      </Group>
      {asTable ? <Wide label={t("Table of {{title}}", { title })}>{table}</Wide> : chart}
    </figure>
  );
}

/** A row for each of the table's, with the texts of its cells. */
function tableCsv(figure: HTMLElement): string {
  return csvText([...figure.querySelectorAll("tr")].map((row) => [...row.children].map((cell) => cell.textContent?.trim() ?? "")));
}

function pictureOf(figure: HTMLElement, title: string): string | null {
  const drawn = [...figure.querySelectorAll("svg")].filter((one) => one.closest("button, label, .recharts-legend-wrapper") === null);
  const largest = drawn.sort((a, b) => b.getBoundingClientRect().width - a.getBoundingClientRect().width)[0];
  const legend = [...figure.querySelectorAll(".recharts-legend-item")].map((item) => ({
    name: item.textContent ?? "",
    colour: getComputedStyle(item.querySelector(".recharts-legend-item-text") ?? item).color,
  }));
  return largest === undefined ? null : drawnSvg(largest, title, legend);
}
