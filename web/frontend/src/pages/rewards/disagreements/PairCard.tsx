import { Anchor, Button, Checkbox, Group, SimpleGrid, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { Trans } from "react-i18next";
import { Link, useNavigate } from "react-router";

import type { Schemas } from "../../../api/client";
import { FormattedText } from "../../../components/FormattedText";
import { Messages } from "../../../components/Messages";
import { PoolBadge } from "../../../components/PoolBadge";
import { count } from "../../../format/count";
import { figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { prefill } from "../playground/draft";

type Pair = Schemas["DisagreedPair"];
type Side = Schemas["PairSide"];

/** One pair: the prompt, both responses, what each of the two models says of them. */
export function PairCard({
  pair,
  first,
  second,
  picked,
  onPick,
}: {
  pair: Pair;
  first: string;
  second: string;
  picked: boolean;
  onPick?: () => void;
}) {
  const [expanded, setWhole] = useState(false);
  const navigate = useNavigate();
  const last = pair.prompt.at(-1);
  const notes = [
    { name: first, side: pair.first },
    { name: second, side: pair.second },
  ];
  return (
    <article className="panel" aria-label={t("Pair {{comparison_id}}", { comparison_id: pair.comparison_id })}>
      <Stack gap={8}>
        <Group justify="space-between" gap="xs">
          <Group gap="xs">
            {onPick !== undefined && (
              <Checkbox size="xs" checked={picked} onChange={onPick} aria-label={t("Select {{comparison_id}}", { comparison_id: pair.comparison_id })} />
            )}
            <PoolBadge pool={pair.pool} />
            <Text size="xs">
              {pair.label === null ? t("no label") : t("label {{label}}", { label: pair.label })}
              {pair.supports !== "unlabelled" && t(", supports {{model}}", { model: pair.supports === "first" ? first : second })}
            </Text>
          </Group>
          <Group gap="xs">
            <Button variant="subtle" size="compact-xs" aria-expanded={expanded} onClick={() => setWhole(!expanded)}>
              {expanded ? t("Less") : t("Whole text")}
            </Button>
            <Button
              variant="subtle"
              size="compact-xs"
              onClick={() => {
                prefill(pair.prompt, [pair.response_a, pair.response_b]);
                void navigate("/rewards/playground");
              }}
              disabled={pair.characters_a > pair.response_a.length || pair.characters_b > pair.response_b.length}
            >{t("Open in the playground")}</Button>
            <Anchor component={Link} to={`/data/comparisons/${pair.comparison_id}`} size="xs">
              {t("Comparison")}
            </Anchor>
          </Group>
        </Group>
        {expanded ? (
          <Messages turns={pair.prompt} plain={false} />
        ) : (
          <Text size="sm" lineClamp={2} className="rewards-clip">
            {pair.prompt.length > 1 && (
              <Text span size="xs" className="dim">
                {t("turn {{prompt}}:", { prompt: pair.prompt.length })}
              </Text>
            )}
            {last?.content}
          </Text>
        )}
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
          {(["A", "B"] as const).map((letter) => (
            <Response
              key={letter}
              letter={letter}
              text={letter === "A" ? pair.response_a : pair.response_b}
              characters={letter === "A" ? pair.characters_a : pair.characters_b}
              whole={expanded}
              preferredBy={notes.filter(({ side }) => side.prefers === letter).map(({ name }) => name)}
            />
          ))}
        </SimpleGrid>
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
          {notes.map(({ name, side }) => (
            <Said key={name} name={name} side={side} />
          ))}
        </SimpleGrid>
      </Stack>
    </article>
  );
}

function Response({
  letter,
  text,
  characters,
  whole: expanded,
  preferredBy,
}: {
  letter: "A" | "B";
  text: string;
  characters: number;
  whole: boolean;
  preferredBy: string[];
}) {
  return (
    <div>
      <Text size="xs" className="dim">
        {t("Response {{letter}}, {{characters}}", { letter, characters: t("{{count}} characters", { count: characters }) })}
        {preferredBy.length > 0 && t(", preferred by {{preferredBy}}", { preferredBy: preferredBy.join(", ") })}
      </Text>
      {expanded ? (
        <FormattedText text={text} />
      ) : (
        <Text size="sm" lineClamp={4} className="rewards-clip">
          {text}
        </Text>
      )}
      {expanded && characters > text.length && (
        <Text size="xs" className="dim">
          {t("The first {{text}} characters; the comparison's own page has the rest.", { text: count(text.length) })}
        </Text>
      )}
    </div>
  );
}

function Said({ name, side }: { name: string; side: Side }) {
  const reward = (value: number | null, spread: number | null) =>
    `${figure(value)}${spread === null ? "" : ` ± ${figure(spread)}`}`;
  return (
    <Text size="xs" component="div" style={{ overflowWrap: "anywhere" }}>
      <Trans i18nKey="<b>{{name}}</b> prefers <b>{{side}}</b>" values={{ name, side: side.prefers }} components={{ b: <b /> }} />
      {side.reward_a === null ? (
        <>, {side.probability === null ? t("confidence not said") : t("confidence {{probability}}", { probability: figure(side.probability) })}</>
      ) : (
        <>
          , {side.probability === null ? t("not calibrated") : `P ${figure(side.probability)}`}
          {t("; margin {{margin}}, {{times}} times its usual one; reward A {{rewardA}}, B {{rewardB}}", {
            margin: figure(Math.abs(side.margin)),
            times: figure(Math.abs(side.relative_margin), 2),
            rewardA: reward(side.reward_a, side.uncertainty_a),
            rewardB: reward(side.reward_b, side.uncertainty_b),
          })}
        </>
      )}
    </Text>
  );
}
