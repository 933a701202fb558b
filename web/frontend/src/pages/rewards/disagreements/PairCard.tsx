import { Anchor, Button, Checkbox, Group, SimpleGrid, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { Link, useNavigate } from "react-router";

import type { Schemas } from "../../../api/client";
import { Markdown } from "../../../components/Markdown";
import { Messages } from "../../../components/Messages";
import { PoolBadge } from "../../../components/PoolBadge";
import { count } from "../../../format/count";
import { figure } from "../../../format/figure";
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
    <article className="panel" aria-label={`Pair ${pair.comparison_id}`}>
      <Stack gap={8}>
        <Group justify="space-between" gap="xs">
          <Group gap="xs">
            {onPick !== undefined && (
              <Checkbox size="xs" checked={picked} onChange={onPick} aria-label={`Select ${pair.comparison_id}`} />
            )}
            <PoolBadge pool={pair.pool} />
            <Text size="xs">
              {pair.label === null ? "no label" : `label ${pair.label}`}
              {pair.supports !== "unlabelled" && `, supports ${pair.supports === "first" ? first : second}`}
            </Text>
          </Group>
          <Group gap="xs">
            <Button variant="subtle" size="compact-xs" aria-expanded={expanded} onClick={() => setWhole(!expanded)}>
              {expanded ? "Less" : "Whole text"}
            </Button>
            <Button
              variant="subtle"
              size="compact-xs"
              onClick={() => {
                prefill(pair.prompt, [pair.response_a, pair.response_b]);
                void navigate("/rewards/playground");
              }}
              disabled={pair.characters_a > pair.response_a.length || pair.characters_b > pair.response_b.length}
            >
              Open in the playground
            </Button>
            <Anchor component={Link} to={`/data/comparisons/${pair.comparison_id}`} size="xs">
              Comparison
            </Anchor>
          </Group>
        </Group>
        {expanded ? (
          <Messages turns={pair.prompt} plain={false} />
        ) : (
          <Text size="sm" lineClamp={2} className="rewards-clip">
            {pair.prompt.length > 1 && (
              <Text span size="xs" className="dim">
                turn {pair.prompt.length}:{" "}
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
        Response {letter}, {count(characters)} characters
        {preferredBy.length > 0 && `, preferred by ${preferredBy.join(", ")}`}
      </Text>
      {expanded ? (
        <Markdown text={text} />
      ) : (
        <Text size="sm" lineClamp={4} className="rewards-clip">
          {text}
        </Text>
      )}
      {expanded && characters > text.length && (
        <Text size="xs" className="dim">
          The first {count(text.length)} characters; the comparison&apos;s own page has the rest.
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
      <b>{name}</b> prefers <b>{side.prefers}</b>
      {side.reward_a === null ? (
        <>, {side.probability === null ? "confidence not said" : `confidence ${figure(side.probability)}`}</>
      ) : (
        <>
          , {side.probability === null ? "not calibrated" : `P ${figure(side.probability)}`}; margin {figure(Math.abs(side.margin))},{" "}
          {figure(Math.abs(side.relative_margin), 2)} times its usual one; reward A {reward(side.reward_a, side.uncertainty_a)}, B{" "}
          {reward(side.reward_b, side.uncertainty_b)}
        </>
      )}
    </Text>
  );
}
