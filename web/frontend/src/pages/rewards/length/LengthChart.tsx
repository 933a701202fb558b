import { Table } from "@mantine/core";
import { CartesianGrid, ErrorBar, ResponsiveContainer, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from "recharts";

import type { Schemas } from "../../../api/client";
import { ChartFigure } from "../../../components/ChartFigure";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { colourOf } from "../charts/colours";
import { TOOLTIP } from "../charts/tooltip";

type Group = Schemas["LengthPage"]["groups"][number];

/** Single responses, and the mean reward of ten groups of equal count by length. */
export function LengthChart({ page, model }: { page: Schemas["LengthPage"]; model: string }) {
  const groups = page.groups.map((group) => ({
    ...group,
    spread: [group.reward - (group.low ?? group.reward), (group.high ?? group.reward) - group.reward],
  }));
  return (
    <ChartFigure
      title={`Reward of ${model} against length: ${count(page.dots.length)} responses, means of ten groups with 95 % intervals`}
      height={340}
      table={
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Characters</Table.Th>
              <Table.Th ta="right">Responses</Table.Th>
              <Table.Th ta="right">Mean reward</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {page.groups.map((group) => (
              <Table.Tr key={`${group.shortest} ${group.longest}`}>
                <Table.Td>
                  {count(group.shortest)} to {count(group.longest)}
                </Table.Td>
                <Table.Td ta="right">{count(group.responses)}</Table.Td>
                <Table.Td ta="right">{figure(group.reward)}</Table.Td>
                <Table.Td ta="right">{interval(group.low, group.high)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      }
    >
      <ResponsiveContainer width="100%" height="100%">
        <ScatterChart margin={{ top: 8, right: 12, bottom: 18, left: 4 }} accessibilityLayer={false}>
          <CartesianGrid />
          <XAxis
            type="number"
            dataKey="length"
            domain={[0, "auto"]}
            tickFormatter={count}
            label={{ value: "characters of the response", position: "insideBottom", offset: -10, fontSize: 12, fill: "var(--assay-dim)" }}
          />
          <YAxis
            type="number"
            dataKey="reward"
            domain={["auto", "auto"]}
            width={56}
            tickFormatter={(value: number) => figure(value, 2)}
            label={{ value: "reward", angle: -90, position: "insideLeft", offset: 6, fontSize: 12, fill: "var(--assay-dim)", style: { textAnchor: "middle" } }}
          />
          <Tooltip
            {...TOOLTIP}
            content={({ payload }) => {
              const at = payload?.[0]?.payload as (Partial<Group> & { length: number; reward: number }) | undefined;
              if (at === undefined) return null;
              return (
                <div className="panel" style={{ fontSize: 12 }}>
                  {at.responses === undefined
                    ? `${count(at.length)} characters, reward ${figure(at.reward)}`
                    : `${count(at.responses)} responses of ${count(at.shortest ?? 0)} to ${count(at.longest ?? 0)} characters: ${figure(at.reward)} (${interval(at.low, at.high)})`}
                </div>
              );
            }}
          />
          <Scatter data={page.dots} fill="var(--assay-dim)" fillOpacity={0.3} isAnimationActive={false} shape={<Dot />} />
          <Scatter data={groups} fill={colourOf(1)} line={{ stroke: colourOf(1), strokeWidth: 2 }} isAnimationActive={false}>
            <ErrorBar dataKey="spread" direction="y" width={6} strokeWidth={1.5} stroke={colourOf(1)} isAnimationActive={false} />
          </Scatter>
        </ScatterChart>
      </ResponsiveContainer>
    </ChartFigure>
  );
}

function Dot({ cx, cy }: { cx?: number; cy?: number }) {
  return <circle cx={cx} cy={cy} r={2} fill="var(--assay-dim)" fillOpacity={0.35} />;
}
