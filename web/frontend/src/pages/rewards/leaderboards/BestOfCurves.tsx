import { Code, Group, Select, Table, Text, Title } from "@mantine/core";
import { useState } from "react";
import { Trans } from "react-i18next";
import { CartesianGrid, ErrorBar, Legend, Line, LineChart, ResponsiveContainer, Tooltip, XAxis, YAxis } from "recharts";

import { ChartFigure } from "../../../components/ChartFigure";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import { colourOf } from "../charts/colours";
import { TOOLTIP } from "../charts/tooltip";
import type { Result } from "./results";

const LISTS = ["rewardbench2", "rmb", "ppe"];

/** Between which numbers of lists a curve is, where they differ: its right end may be of one list. */
function shrinking(points: Result["curves"][number]["points"]): string | null {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined || first.items === last.items) return null;
  return t("{{lists}} at {{n}}, {{items}} at {{n2}}", { lists: t("{{count}} lists", { count: first.items }), n: first.n, items: count(last.items), n2: last.n });
}

/** What choosing the best of n by each model brings in gold; nothing where the benchmark has no lists. */
export function BestOfCurves({ results, names }: { results: Result[]; names: string[] }) {
  const curves = [...new Set(results.flatMap((result) => result.curves.map(({ name }) => name)))];
  const [chosen, setChosen] = useState<string | null>(null);
  const curve = chosen !== null && curves.includes(chosen) ? chosen : curves[0];
  if (curve === undefined) {
    if (!LISTS.includes(results[0]?.bench ?? "")) return null;
    return (
      <Text size="sm" className="dim">
        <Trans
          i18nKey={"These results have no best-of-n curve: run the evaluation again with <code>assay eval --bench {{bench}} --model NAME</code>."}
          values={{ bench: results[0]?.bench }}
          components={{ code: <Code /> }}
        />
      </Text>
    );
  }
  const series = results.map((result, index) => ({
    name: names[index] ?? "",
    points: result.curves.find(({ name }) => name === curve)?.points ?? [],
  }));
  const steps = [...new Set(series.flatMap(({ points }) => points.map(({ n }) => n)))].sort((one, other) => one - other);
  const data = steps.map((n) => {
    const row: Record<string, number | [number, number]> = { n };
    series.forEach(({ points }, index) => {
      const point = points.find((one) => one.n === n);
      if (point === undefined) return;
      row[`gold${index}`] = point.gold;
      if (point.low !== null && point.high !== null) row[`spread${index}`] = [point.gold - point.low, point.high - point.gold];
    });
    return row;
  });
  const few = [...new Set(series.flatMap(({ points }) => shrinking(points) ?? []))];
  return (
    <div className="panel">
      <Group justify="space-between" mb={6}>
        <Title order={3}>{t("Best of n")}</Title>
        {curves.length > 1 && (
          <Select aria-label={t("Curve")} data={curves} value={curve} onChange={setChosen} allowDeselect={false} w={200} />
        )}
      </Group>
      <ChartFigure
        title={t("Expected gold of the best of n by each model, {{curve}}; 95 % intervals", { curve })}
        height={280}
        table={
          <Table>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>n</Table.Th>
                <Table.Th>{t("KL, nats")}</Table.Th>
                {series.map(({ name }) => (
                  <Table.Th key={name}>{name}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {steps.map((n) => (
                <Table.Tr key={n}>
                  <Table.Td>{n}</Table.Td>
                  <Table.Td>{figure(series.flatMap(({ points }) => points).find((one) => one.n === n)?.kl)}</Table.Td>
                  {series.map(({ name, points }) => {
                    const point = points.find((one) => one.n === n);
                    return (
                      <Table.Td key={name}>
                        {figure(point?.gold)} ({interval(point?.low, point?.high)}), {t("{{count}} lists", { count: point?.items ?? 0 })}
                      </Table.Td>
                    );
                  })}
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        }
      >
        <ResponsiveContainer width="100%" height="100%">
          <LineChart data={data} margin={{ top: 8, right: 16, bottom: 4, left: 0 }} accessibilityLayer={false}>
            <CartesianGrid vertical={false} />
            <XAxis dataKey="n" type="number" domain={["dataMin", "dataMax"]} ticks={steps.length <= 12 ? steps : undefined} />
            <YAxis domain={["auto", "auto"]} tickFormatter={(value: number) => figure(value, 2)} width={48} />
            <Tooltip {...TOOLTIP} formatter={(value) => figure(Number(value))} labelFormatter={(n) => t("best of {{n}}", { n })} />
            <Legend />
            {series.map(({ name }, index) => (
              <Line
                key={name}
                name={name}
                dataKey={`gold${index}`}
                stroke={colourOf(index)}
                strokeWidth={2}
                dot={{ r: 2.5 }}
                isAnimationActive={false}
              >
                <ErrorBar dataKey={`spread${index}`} width={5} stroke={colourOf(index)} isAnimationActive={false} />
              </Line>
            ))}
          </LineChart>
        </ResponsiveContainer>
      </ChartFigure>
      {few.length > 0 && (
        <Text size="xs" className="dim">
          {t("Only lists of n responses or more count at n, fewer towards the right: {{few}}.", { few: few.join("; ") })}
        </Text>
      )}
    </div>
  );
}
