import { Badge, Stack, Table, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { FormattedText } from "../../../components/FormattedText";
import { NONE } from "../../../format/none";
import { t } from "../../../i18n";
import { Section } from "./Section";

const COLOURS: Record<string, string> = { yes: "green", no: "red", partially: "yellow", correct: "green", incorrect: "red" };

/** Who found which principle fulfilled by which response, by what evidence, and what became of it. */
export function PrincipleVotes({ votes }: { votes: Schemas["PrincipleVote"][] }) {
  if (votes.length === 0) return null;
  return (
    <Section title={t("Principle votes")}>
      <Table miw={640}>
        <Table.Thead>
          <Table.Tr>
            {[t("Principle"), t("Response"), t("Answer"), t("By"), t("Evidence"), t("Filter")].map((title) => (
              <Table.Th key={title} scope="col">
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {votes.map((vote) => (
            <Table.Tr key={vote.judgment_id} style={{ verticalAlign: "top" }}>
              <Table.Td>{vote.principle}</Table.Td>
              <Table.Td>{vote.side}</Table.Td>
              <Table.Td>
                <Answer text={vote.answer} />
              </Table.Td>
              <Table.Td>
                {vote.annotator}
                <Text size="xs" className="dim">
                  {vote.extractor === null ? vote.kind : t("read by {{extractor}}", { extractor: vote.extractor })}
                </Text>
              </Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{vote.evidence ?? NONE}</Table.Td>
              <Table.Td>
                {vote.outcome ?? NONE}
                {vote.outcome_reason !== null && (
                  <Text size="xs" className="dim">
                    {vote.outcome_reason}
                  </Text>
                )}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Section>
  );
}

/** Feedback on the single responses, and whether they were found correct. */
export function Feedback({ feedback, checks }: { feedback: Schemas["FeedbackText"][]; checks: Schemas["ResponseCheck"][] }) {
  if (feedback.length + checks.length === 0) return null;
  return (
    <Section title={t("Of the single responses")}>
      <Stack gap="xs">
        {checks.map((check) => (
          <Text size="sm" key={`${check.side} ${check.annotator}`}>
            <strong>{check.side}</strong> <Answer text={check.verdict} /> {t("by {{created_by}}", { created_by: check.annotator })}
            {check.reason !== null && `: ${check.reason}`}
          </Text>
        ))}
        {feedback.map((one) => (
          <div key={one.feedback_id}>
            <Text size="xs" className="dim">
              {one.side}, {one.annotator}
            </Text>
            <Text size="sm" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
              {one.content}
            </Text>
          </div>
        ))}
      </Stack>
    </Section>
  );
}

/** Attributes that are prose of a person or a model. */
const WRITTEN = new Set(["guideline", "desired"]);

/** What was noted of the comparison as a whole: task, difficulty, guideline and the like. */
export function Attributes({ attributes }: { attributes: Schemas["AttributeRecord"][] }) {
  if (attributes.length === 0) return null;
  return (
    <Section title={t("Attributes")}>
      <Table>
        <Table.Tbody>
          {attributes.map((one) => (
            <Table.Tr key={`${one.name} ${one.annotator}`} style={{ verticalAlign: "top" }}>
              <Table.Th scope="row" w={160}>
                {one.name}
              </Table.Th>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{WRITTEN.has(one.name) ? <FormattedText text={parsed(one.value)} /> : parsed(one.value)}</Table.Td>
              <Table.Td className="dim">{one.annotator}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Section>
  );
}

function Answer({ text }: { text: string }) {
  return (
    <Badge size="xs" variant="light" color={COLOURS[text] ?? "gray"}>
      {text}
    </Badge>
  );
}

/** JSON as people read it. */
function parsed(json: string): string {
  const value: unknown = JSON.parse(json);
  return typeof value === "string" ? value : JSON.stringify(value);
}
