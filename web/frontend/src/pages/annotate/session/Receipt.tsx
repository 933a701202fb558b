import { Stack, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";
import { ANSWERS, LETTERS } from "../principles/answers";
import { rationaleInWords, saidInWords, useWords } from "../words";
import type { LastVote } from "./useAnnotationSession";

/** What a stored vote said, and what judges and others said of the same pair: never shown before it. */
export function Receipt({ last }: { last: LastVote }) {
  const { receipt, strength, decision } = last;
  const words = useWords();
  return (
    <Stack gap={4} role="status" aria-label={t("Stored")}>
      <Text size="sm">
        {t("Stored:")} <strong>{saidInWords(words, receipt.said, strength)}</strong>
        {decision.skip !== undefined && ` (${rationaleInWords(words, "skip", decision.skip)})`}
        {receipt.repeated && ` ${t("(it was there already)")}`}
      </Text>
      <Opinions title={t("Judges")} opinions={receipt.opinions} />
      <Opinions title={t("Other people")} opinions={receipt.votes} />
    </Stack>
  );
}

/** Each with who said it, in the letters of the reader's screen. */
export function Opinions({ title, opinions }: { title: string; opinions: Schemas["RevealedOpinion"][] }) {
  const words = useWords();
  if (opinions.length === 0) return null;
  return (
    <div>
      <Text size="xs" fw={600} className="dim">
        {title}
      </Text>
      {opinions.map((opinion) => (
        <Text key={opinion.by} size="sm" style={{ overflowWrap: "anywhere" }}>
          {opinion.by}: <strong>{opinion.answer || saidInWords(words, opinion.said, opinion.strength)}</strong>
          {opinion.rationale !== "" && <span className="dim">. <bdi>{rationaleInWords(words, opinion.said, opinion.rationale)}</bdi></span>}
          <Principles answers={opinion.principles} />
        </Text>
      ))}
    </div>
  );
}

/** What somebody said of principles with their vote: "A, is clear: yes", and the words that show it. */
function Principles({ answers }: { answers: Schemas["RevealedAnswer"][] }) {
  return answers.map(({ place, principle, answer, evidence }) => (
    <Text key={`${place} ${principle}`} component="span" display="block" size="sm" pl="sm">
      {LETTERS[place]}, <bdi>{principle}</bdi>: <strong>{t(ANSWERS.find((one) => one.answer === answer)?.label ?? "")}</strong>
      {evidence !== null && <q dir="auto" className="dim session-evidence">{evidence}</q>}
    </Text>
  ));
}
