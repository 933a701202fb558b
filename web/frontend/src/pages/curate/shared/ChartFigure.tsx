import { Group, Switch, Text } from "@mantine/core";
import { useId, useState, type ReactNode } from "react";

/** A chart with a name and, in its place when asked for, a table of the same figures. */
export function ChartFigure({ title, table, children }: { title: string; table: ReactNode; children: ReactNode }) {
  const id = useId();
  const [asTable, setAsTable] = useState(false);
  return (
    <figure aria-labelledby={id} style={{ margin: 0 }}>
      <Group justify="space-between" wrap="nowrap" align="start" gap="sm" mb={4}>
        <Text component="figcaption" id={id} size="sm" fw={600}>
          {title}
        </Text>
        <Switch
          size="xs"
          label="Table"
          aria-label={`Table of: ${title}`}
          checked={asTable}
          onChange={(event) => setAsTable(event.currentTarget.checked)}
          style={{ flexShrink: 0 }}
        />
      </Group>
      {asTable ? table : children}
    </figure>
  );
}
