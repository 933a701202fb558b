import "./RunEpisode.css";

import { Text } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { formatNumber } from "../../components/chartData";
import { Messages } from "../../components/Messages";
import { counted } from "../../format/count";
import { duration } from "../../format/duration";

type Episode = Schemas["EpisodeReply"];
type Turn = Episode["turns"][number];

/** An episode turn by turn: what the policy said and called, what came of it, what each turn and the whole earned. */
export function RunEpisode({ episode }: { episode: Episode }) {
  return (
    <div className="episode">
      {episode.opening.length > 0 && (
        <section aria-label="Before the first turn">
          <Heading title="Before the first turn" facts={[]} rewards={{}} />
          <Messages turns={episode.opening} plain />
        </section>
      )}
      <ol>
        {episode.turns.map((turn, number) => (
          <li key={number}>
            <Heading title={`Turn ${number + 1}`} facts={factsOf(turn)} rewards={turn.rewards} />
            <Messages turns={turn.messages} plain />
          </li>
        ))}
      </ol>
      <Heading title={`The episode ${ENDS[episode.ended] ?? episode.ended}`} facts={[]} rewards={episode.rewards} />
    </div>
  );
}

const ENDS: Record<string, string> = { done: "came to its end", failed: "failed", turns: "was ended by the limit on turns", tokens: "was ended by the limit on tokens" };

function factsOf(turn: Turn): string[] {
  return [
    counted(turn.tokens, "token"),
    duration(turn.seconds),
    ...(turn.calls > 0 ? [counted(turn.calls, "call")] : []),
    ...(turn.invalid > 0 ? [`${turn.invalid} could not be run`] : []),
    ...(turn.errors > turn.invalid ? [counted(turn.errors - turn.invalid, "error")] : []),
    ...(turn.oversized ? ["an observation was too long"] : []),
  ];
}

function Heading({ title, facts, rewards }: { title: string; facts: string[]; rewards: Record<string, number | string> }) {
  return (
    <Text component="div" size="sm" className="episode-heading">
      <strong>{title}</strong>
      {facts.map((fact) => (
        <span key={fact} className="dim">
          {fact}
        </span>
      ))}
      {Object.entries(rewards).map(([name, value]) => (
        <span key={name}>
          {name}: {typeof value === "number" ? formatNumber(value) : value}
        </span>
      ))}
    </Text>
  );
}
