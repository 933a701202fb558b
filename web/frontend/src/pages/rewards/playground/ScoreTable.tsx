import { Badge, Stack, Table, Text } from "@mantine/core";

import { Wide } from "../../../components/Wide";
import { figure } from "../../../format/figure";
import { t, textKey } from "../../../i18n";
import { short } from "../format";
import type { Answer, Reply } from "./draft";

type Column = Reply["columns"][number];
type Score = Column["scores"][number];

const GATES: Record<string, string> = { veto: textKey("veto"), must_have: textKey("must have") };
const BASIS = { calibration: textKey("by its calibration"), bradley_terry: textKey("as a log-odds, not calibrated") };

/** Responses down, models (and principles) across. What could not be scored is said in words, never in a number. */
export function ScoreTable({ answer }: { answer: Answer }) {
  const { question, reply } = answer;
  const shared = new Set(reply.columns.map(({ address }) => address)).size > 1;
  return (
    <Wide label={t("Scores")}>
      <Table withTableBorder withColumnBorders verticalSpacing={6} style={{ minWidth: 260 + 170 * reply.columns.length }}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th style={{ minWidth: 160 }}>{t("Response")}</Table.Th>
            {reply.columns.map((column, index) => (
              <Table.Th key={index} style={{ minWidth: 160, verticalAlign: "top" }}>
                <ColumnHead column={column} shared={shared} />
              </Table.Th>
            ))}
            <Table.Th style={{ minWidth: 110, verticalAlign: "top" }}>{t("Ranked")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {question.responses.map((text, row) => (
            <Table.Tr key={row} style={{ verticalAlign: "top" }}>
              <Table.Th scope="row" fw={400} style={{ maxWidth: 280 }}>
                <Text size="sm" lineClamp={4} style={{ overflowWrap: "anywhere" }}>
                  <b>{row + 1}</b> {text}
                </Text>
              </Table.Th>
              {reply.columns.map((column, index) => (
                <Table.Td key={index}>
                  {column.refused === null ? (
                    <ScoreCell score={column.scores[row]!} />
                  ) : (
                    <Text size="xs" className="dim">{t("not asked")}</Text>
                  )}
                </Table.Td>
              ))}
              <Table.Td>
                <StandingCell standing={reply.standings[row]!} />
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}

function ColumnHead({ column, shared }: { column: Column; shared: boolean }) {
  return (
    <Stack gap={2}>
      <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
        {column.model}
        {column.version !== null && (
          <Text span size="xs" className="dim">
            {" "}
            {short(column.version)}
          </Text>
        )}
      </Text>
      {shared && (
        <Text size="xs" className="dim" style={{ overflowWrap: "anywhere" }}>
          {column.address}
        </Text>
      )}
      {column.principle !== null && (
        <Text size="xs" fs="italic" style={{ whiteSpace: "normal" }}>
          {column.principle}
        </Text>
      )}
      {column.refused !== null && (
        <Text size="xs" c="red" style={{ whiteSpace: "normal" }}>
          {t("Not asked: {{refused}}", { refused: column.refused })}
        </Text>
      )}
      {column.best_beats_second !== null && column.basis !== null && (
        <Text size="xs" className="dim" fw={400} style={{ whiteSpace: "normal" }}>
          {t("P(best beats second) {{best_beats_second}}, {{basis}}", { best_beats_second: figure(column.best_beats_second), basis: t(BASIS[column.basis]) })}
        </Text>
      )}
    </Stack>
  );
}

function ScoreCell({ score }: { score: Score }) {
  if (score.failure !== null || score.reward === null) {
    return (
      <Stack gap={2}>
        <Badge color="red" variant="light" size="sm" tt="none">
          {t("failed: {{code}}", { code: score.code })}
        </Badge>
        <Text size="xs" style={{ overflowWrap: "anywhere" }}>
          {score.failure}
        </Text>
      </Stack>
    );
  }
  return (
    <Stack gap={2}>
      <Text size="md" fw={600} className="rewards-number">
        {figure(score.reward, 4)}
        {score.uncertainty !== null && (
          <Text span size="sm" fw={400}>
            {" "}
            ± {figure(score.uncertainty)}
          </Text>
        )}
        {score.rank !== null && (
          <Text span size="xs" fw={400} className="dim">{"  "}{t("rank {{rank}}", { rank: score.rank })}</Text>
        )}
      </Text>
      <Text size="xs" className="rewards-number">
        {score.probability === null ? (
          <span className="dim">{t("P not calibrated")}</span>
        ) : (
          <>
            P {figure(score.probability)}
            {score.calibration === null && <span className="dim">{t(", not calibrated")}</span>}
          </>
        )}
        {score.tokens != null && <span className="dim"> · {t("{{count}} tokens", { count: score.tokens })}</span>}
      </Text>
      {score.uncertainty === null && (
        <Text size="xs" className="dim">{t("uncertainty not given")}</Text>
      )}
      {score.truncated === true && (
        <Badge color="yellow" variant="light" size="sm" tt="none">
          {t("truncated: older turns were cut")}
        </Badge>
      )}
      {score.coverage != null && score.coverage < 1 && (
        <Badge color="yellow" variant="light" size="sm" tt="none">
          {t("{{value}} % of the items have a grade", { value: figure(100 * score.coverage, 0) })}
        </Badge>
      )}
      {score.parts.length > 0 && (
        <Text size="xs" className="dim">
          {partsText(score.parts)}
        </Text>
      )}
    </Stack>
  );
}

/** Of an ensemble of many members only their number and range. */
function partsText(parts: Column["scores"][number]["parts"]): string {
  const members = parts.flatMap((part) => (part.name.startsWith("member-") && part.value !== null ? [part.value] : []));
  if (members.length > 4 && members.length === parts.length)
    return t("{{members}}, {{min}} to {{max}}", { members: t("{{count}} members", { count: members.length }), min: figure(Math.min(...members)), max: figure(Math.max(...members)) });
  return parts.map(partText).join("; ");
}

function partText({ name, skipped, failed, gate, value, reward }: Column["scores"][number]["parts"][number]): string {
  if (skipped !== null) return t("{{name}} skipped: {{skipped}}", { name, skipped });
  if (failed !== null) return t("{{name}} failed: {{failed}}", { name, failed });
  return `${name} ${figure(value ?? reward)}${gate === null ? "" : t(" (decided: {{gate}})", { gate: t(GATES[gate] ?? gate) })}`;
}

function StandingCell({ standing }: { standing: Reply["standings"][number] }) {
  if (standing.columns === 0)
    return (
      <Text size="xs" className="dim">{t("not ranked")}</Text>
    );
  return (
    <Text size="xs">
      {t("best in {{best}} of {{columns}}", { best: standing.best, columns: standing.columns })}
      <br />
      {t("worst in {{worst}} of {{columns}}", { worst: standing.worst, columns: standing.columns })}
    </Text>
  );
}
