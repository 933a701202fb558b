import "./RunEpisode.css";

import { Text } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { formatNumber } from "../../components/chartData";
import { Messages } from "../../components/Messages";
import { duration } from "../../format/duration";
import { t, textKey } from "../../i18n";

type Episode = Schemas["EpisodeReply"];
type Turn = Episode["turns"][number];

/** An episode turn by turn: what the policy said and called, what came of it, what each turn and the whole earned. */
export function RunEpisode({ episode }: { episode: Episode }) {
  return (
    <div className="episode">
      {episode.opening.length > 0 && (
        <section aria-label={t("Before the first turn")}>
          <Heading title={t("Before the first turn")} facts={[]} rewards={{}} />
          <Messages turns={episode.opening} plain />
        </section>
      )}
      <ol>
        {episode.turns.map((turn, number) => (
          <li key={number}>
            <Heading title={t("Turn {{number}}", { number: number + 1 })} facts={factsOf(turn)} rewards={turn.rewards} />
            <Messages turns={turn.messages} plain />
          </li>
        ))}
      </ol>
      <Heading title={t("The episode {{ends}}", { ends: t(ENDS[episode.ended] ?? episode.ended) })} facts={[]} rewards={episode.rewards} />
    </div>
  );
}

const ENDS: Record<string, string> = { done: textKey("came to its end"), failed: textKey("failed"), turns: textKey("was ended by the limit on turns"), tokens: textKey("was ended by the limit on tokens") };

function factsOf(turn: Turn): string[] {
  return [
    t("{{count}} tokens", { count: turn.tokens }),
    duration(turn.seconds),
    ...(turn.calls > 0 ? [t("{{count}} calls", { count: turn.calls })] : []),
    ...(turn.invalid > 0 ? [t("{{invalid}} could not be run", { invalid: turn.invalid })] : []),
    ...(turn.errors > turn.invalid ? [t("{{count}} errors", { count: turn.errors - turn.invalid })] : []),
    ...(turn.oversized ? [t("an observation was too long")] : []),
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
