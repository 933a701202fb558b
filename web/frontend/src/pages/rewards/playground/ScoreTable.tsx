import { Badge, Stack, Table, Text } from "@mantine/core";

import { Wide } from "../../../components/Wide";
import { counted } from "../../../format/count";
import { figure } from "../../../format/figure";
import { short } from "../format";
import type { Answer, Reply } from "./draft";

type Column = Reply["columns"][number];
type Score = Column["scores"][number];

const GATES: Record<string, string> = { veto: "veto", must_have: "must have" };
const BASIS = { calibration: "by its calibration", bradley_terry: "as a log-odds, not calibrated" };

/** Responses down, models (and principles) across. What could not be scored is said in words, never in a number. */
export function ScoreTable({ answer }: { answer: Answer }) {
  const { question, reply } = answer;
  const shared = new Set(reply.columns.map(({ address }) => address)).size > 1;
  return (
    <Wide label="Scores">
      <Table withTableBorder withColumnBorders verticalSpacing={6} style={{ minWidth: 260 + 170 * reply.columns.length }}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th style={{ minWidth: 160 }}>Response</Table.Th>
            {reply.columns.map((column, index) => (
              <Table.Th key={index} style={{ minWidth: 160, verticalAlign: "top" }}>
                <ColumnHead column={column} shared={shared} />
              </Table.Th>
            ))}
            <Table.Th style={{ minWidth: 110, verticalAlign: "top" }}>Ranked</Table.Th>
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
                    <Text size="xs" className="dim">
                      not asked
                    </Text>
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
          Not asked: {column.refused}
        </Text>
      )}
      {column.best_beats_second !== null && column.basis !== null && (
        <Text size="xs" className="dim" fw={400} style={{ whiteSpace: "normal" }}>
          P(best beats second) {figure(column.best_beats_second)}, {BASIS[column.basis]}
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
          failed: {score.code}
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
          <Text span size="xs" fw={400} className="dim">
            {"  "}rank {score.rank}
          </Text>
        )}
      </Text>
      <Text size="xs" className="rewards-number">
        {score.probability === null ? (
          <span className="dim">P not calibrated</span>
        ) : (
          <>
            P {figure(score.probability)}
            {score.calibration === null && <span className="dim">, not calibrated</span>}
          </>
        )}
        {score.tokens != null && <span className="dim"> · {counted(score.tokens, "token")}</span>}
      </Text>
      {score.uncertainty === null && (
        <Text size="xs" className="dim">
          uncertainty not given
        </Text>
      )}
      {score.truncated === true && (
        <Badge color="yellow" variant="light" size="sm" tt="none">
          truncated: older turns were cut
        </Badge>
      )}
      {score.coverage != null && score.coverage < 1 && (
        <Badge color="yellow" variant="light" size="sm" tt="none">
          {figure(100 * score.coverage, 0)} % of the items have a grade
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
    return `${counted(members.length, "member")}, ${figure(Math.min(...members))} to ${figure(Math.max(...members))}`;
  return parts.map(partText).join("; ");
}

function partText({ name, skipped, failed, gate, value, reward }: Column["scores"][number]["parts"][number]): string {
  if (skipped !== null) return `${name} skipped: ${skipped}`;
  if (failed !== null) return `${name} failed: ${failed}`;
  return `${name} ${figure(value ?? reward)}${gate === null ? "" : ` (decided: ${GATES[gate] ?? gate})`}`;
}

function StandingCell({ standing }: { standing: Reply["standings"][number] }) {
  if (standing.columns === 0)
    return (
      <Text size="xs" className="dim">
        not ranked
      </Text>
    );
  return (
    <Text size="xs">
      best in {standing.best} of {standing.columns}
      <br />
      worst in {standing.worst} of {standing.columns}
    </Text>
  );
}
