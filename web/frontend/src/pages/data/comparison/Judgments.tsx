import { Switch, Table, Text } from "@mantine/core";
import { useState } from "react";

import type { Schemas } from "../../../api/client";
import { duration } from "../../../format/duration";
import { figure } from "../../../format/figure";
import { moment } from "../../../format/moment";
import { NONE } from "../../../format/none";
import { t, textKey } from "../../../i18n";
import { Section } from "./Section";

type Judgment = Schemas["JudgmentRecord"];

const ANSWERS: Record<string, string> = { tie: textKey("tie"), both_good: textKey("both good"), both_bad: textKey("both bad"), skip: textKey("skipped") };

/** An answer as people read it: `both_bad` is "both bad"; A and B stay. */
export function answerInWords(answer: string): string {
  return t(ANSWERS[answer] ?? answer);
}

/** What everybody said, those included who took it back. A judge's single votes are shown when asked for. */
export function Judgments({ judgments, sourceLabel }: { judgments: Judgment[]; sourceLabel: string | null }) {
  const [votes, setVotes] = useState(false);
  const hidden = judgments.filter((one) => one.vote).length;
  const visible = judgments.filter((one) => votes || !one.vote);
  const sources = judgments.filter((one) => one.kind === "source").length;
  const note = sources > 1 && sourceLabel === null ? t("the sources contradict each other") : undefined;
  return (
    <Section title={t("Judgments")} note={note}>
      {hidden > 0 && (
        <Switch size="xs" mb={4} label={t("{{count}} single votes of judges", { count: hidden })} checked={votes} onChange={(event) => setVotes(event.currentTarget.checked)} />
      )}
      {judgments.length === 0 ? (
        <Text size="sm" className="dim">{t("Nobody has judged it yet.")}</Text>
      ) : (
        <Table miw={760}>
          <Table.Thead>
            <Table.Tr>
              {[t("Annotator"), t("Answer"), t("Strength"), t("Confidence"), t("Shown"), t("Took"), t("When"), t("Rationale")].map((title) => (
                <Table.Th key={title} scope="col">
                  {title}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {visible.map((one) => (
              <Line key={one.judgment_id} judgment={one} />
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Section>
  );
}

function Line({ judgment: one }: { judgment: Judgment }) {
  return (
    <Table.Tr className={one.withdrawn_at === null ? undefined : "withdrawn"} style={{ verticalAlign: "top" }}>
      <Table.Td>
        {one.annotator}
        <Text size="xs" className="dim">
          {one.kind.replace("_", " ")}
          {one.vote && t(", single vote")}
        </Text>
      </Table.Td>
      <Table.Td fw={600}>{answerInWords(one.answer)}</Table.Td>
      <Table.Td>{one.strength === null ? NONE : t("{{strength}} of 3", { strength: one.strength })}</Table.Td>
      <Table.Td>{figure(one.confidence, 2)}</Table.Td>
      <Table.Td>{one.shown_order === null ? NONE : one.shown_order === "AB" ? t("A first") : t("B first")}</Table.Td>
      <Table.Td>{duration(one.seconds)}</Table.Td>
      <Table.Td style={{ whiteSpace: "nowrap" }}>{moment(one.created_at)}</Table.Td>
      <Table.Td className="note" style={{ overflowWrap: "anywhere", minWidth: 220 }}>
        {one.withdrawn_at !== null && (
          <Text size="sm" fw={600}>
            {t("Taken back {{withdrawn_at}}: {{withdrawn_reason}}", { withdrawn_at: moment(one.withdrawn_at), withdrawn_reason: one.withdrawn_reason })}
          </Text>
        )}
        {one.rationale}
      </Table.Td>
    </Table.Tr>
  );
}
