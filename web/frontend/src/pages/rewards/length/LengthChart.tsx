import { Table } from "@mantine/core";
import { Scatter } from "recharts";

import type { Schemas } from "../../../api/client";
import { ChartFigure } from "../../../components/ChartFigure";
import { count } from "../../../format/count";
import { determined, figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { IntervalScatter } from "../charts/IntervalScatter";

type Group = Schemas["LengthPage"]["groups"][number];

/** Single responses, and the mean reward of ten groups of equal count by length. */
export function LengthChart({ page, model }: { page: Schemas["LengthPage"]; model: string }) {
  const groups = page.groups.map((group) => ({
    ...group,
    spread: [group.reward - (group.low ?? group.reward), (group.high ?? group.reward) - group.reward],
  }));
  const heights = [...page.dots.map((dot) => dot.reward), ...groups.map((group) => group.reward)];
  const digits = digitsFor(Math.max(...heights) - Math.min(...heights));
  return (
    <ChartFigure
      title={t("Reward of {{model}} against length: {{dots}} responses, means of ten groups with 95 % intervals", { model, dots: count(page.dots.length) })}
      height={340}
      table={
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Characters")}</Table.Th>
              <Table.Th ta="right">{t("Responses")}</Table.Th>
              <Table.Th ta="right">{t("Mean reward")}</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {page.groups.map((group) => (
              <Table.Tr key={`${group.shortest} ${group.longest}`}>
                <Table.Td>
                  {t("{{shortest}} to {{longest}}", { shortest: count(group.shortest), longest: count(group.longest) })}
                </Table.Td>
                <Table.Td ta="right">{count(group.responses)}</Table.Td>
                <Table.Td ta="right">{figure(group.reward)}</Table.Td>
                <Table.Td ta="right">{determined(group.low, group.high)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      }
    >
      <IntervalScatter
        points={groups}
        x={{ of: "length", label: t("characters of the response"), domain: [0, "auto"], format: count }}
        y={{ of: "reward", label: t("reward"), domain: ["auto", "auto"], width: 44 + 8 * digits, format: (value) => figure(value, digits) }}
        series={1}
        width={2}
        told={(point) => {
          const at = point as Partial<Group> & { length: number; reward: number };
          if (at.responses === undefined) return t("{{at}} characters, reward {{reward}}", { at: count(at.length), reward: figure(at.reward) });
          const lengths = t("{{shortest}} to {{longest}} characters", { shortest: count(at.shortest ?? 0), longest: count(at.longest ?? 0) });
          return t("{{responses}} responses of {{lengths}}: {{reward}} ({{low}})", { responses: count(at.responses), lengths, reward: figure(at.reward), low: determined(at.low ?? null, at.high ?? null) });
        }}
      >
        <Scatter data={page.dots} fill="var(--assay-dim)" fillOpacity={0.3} isAnimationActive={false} shape={<Dot />} />
      </IntervalScatter>
    </ChartFigure>
  );
}

/** Behind the point, so that the ticks of an axis of this range differ. */
function digitsFor(range: number): number {
  return range > 0 ? Math.min(6, Math.max(2, 1 - Math.floor(Math.log10(range / 4)))) : 2;
}

function Dot({ cx, cy }: { cx?: number; cy?: number }) {
  return <circle cx={cx} cy={cy} r={2} fill="var(--assay-dim)" fillOpacity={0.35} />;
}
