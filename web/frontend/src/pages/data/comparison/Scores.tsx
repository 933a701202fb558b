import { Table, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { figure, signed } from "../../../format/figure";
import { NONE } from "../../../format/none";
import { t } from "../../../i18n";
import { Section } from "./Section";

type Score = Schemas["ScoreRecord"];

/** What reward models gave the two, side by side: one line a model, version and principle. A failure is never a number. */
export function Scores({ scores }: { scores: Score[] }) {
  if (scores.length === 0) return null;
  const lines = new Map<string, { A?: Score; B?: Score }>();
  for (const score of scores) {
    const key = [score.model, score.model_version, score.template_hash, score.principle].join("\u0000");
    lines.set(key, { ...lines.get(key), [score.side]: score });
  }
  return (
    <Section title={t("Scores")}>
      <Table miw={620}>
        <Table.Thead>
          <Table.Tr>
            {[t("Model"), t("Principle"), "A", "B", "A - B"].map((title) => (
              <Table.Th key={title} scope="col">
                {title}
              </Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {[...lines].map(([key, pair]) => (
            <Line key={key} pair={pair} />
          ))}
        </Table.Tbody>
      </Table>
    </Section>
  );
}

function Line({ pair: { A, B } }: { pair: { A?: Score; B?: Score } }) {
  const one = (A ?? B)!;
  const apart = A?.reward != null && B?.reward != null ? A.reward - B.reward : null;
  return (
    <Table.Tr style={{ verticalAlign: "top" }}>
      <Table.Td style={{ overflowWrap: "anywhere" }}>
        {one.model}
        <Text size="xs" className="dim" ff="monospace" title={one.model_version}>
          {one.model_version
            .split("+")
            .map((part) => part.slice(0, 16))
            .join("+")}
        </Text>
      </Table.Td>
      <Table.Td>{one.principle || NONE}</Table.Td>
      <Table.Td>
        <Value score={A} />
      </Table.Td>
      <Table.Td>
        <Value score={B} />
      </Table.Td>
      <Table.Td>{apart === null ? NONE : signed(apart)}</Table.Td>
    </Table.Tr>
  );
}

function Value({ score }: { score: Score | undefined }) {
  if (score === undefined) return <span className="dim">{t("not asked")}</span>;
  if (score.reward === null) {
    return (
      <Text size="sm" c="var(--mantine-color-red-text)">
        {t("failed: {{error}}", { error: score.error })}
      </Text>
    );
  }
  const about = [
    score.probability !== null && `p ${score.probability.toFixed(2)}`,
    score.tokens !== null && t("{{count}} tokens", { count: score.tokens }),
    score.truncated && t("cut to the model's length"),
  ].filter(Boolean);
  return (
    <>
      <strong>{figure(score.reward)}</strong>
      {score.uncertainty !== null && ` ± ${figure(score.uncertainty)}`}
      <Text size="xs" className="dim">
        {about.join(", ")}
      </Text>
    </>
  );
}
