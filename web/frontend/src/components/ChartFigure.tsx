import "./ChartFigure.css";

import { Group, Switch, Text } from "@mantine/core";
import { useId, useState, type ReactNode } from "react";

import { t } from "../i18n";
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
  const chart =
    height === undefined ? (
      children
    ) : (
      <div className="chart-image" style={{ height, width: "100%" }} role="img" aria-labelledby={id}>
        {children}
      </div>
    );
  return (
    <figure aria-labelledby={id} style={{ margin: 0 }}>
      <Group justify="space-between" wrap="nowrap" align="start" gap="sm" mb={4}>
        <Text component="figcaption" id={id} size="sm" fw={600}>
          {title}
        </Text>
        <Switch
          size="xs"
          label={t("Table")}
          aria-label={t("Table of: {{title}}", { title })}
          checked={asTable}
          onChange={(event) => setAsTable(event.currentTarget.checked)}
          style={{ flexShrink: 0 }}
        />
      </Group>
      {asTable ? <Wide label={t("Table of {{title}}", { title })}>{table}</Wide> : chart}
    </figure>
  );
}
