import { Group, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { clipped } from "../../../format/clipped";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";
import { PairCard } from "../shared/PairCard";

type Conflict = Schemas["ConflictPair"];

/** A comparison and what each party says of it, member by member. */
export function ConflictCard({ conflict }: { conflict: Conflict }) {
  const parties = (["source", "people", "judges"] as const).filter((party) => conflict[party] !== null);
  return (
    <PairCard pair={conflict.pair}>
      <Group gap="md" mt={4} align="start">
        {parties.map((party) => (
          <div key={party}>
            <Text size="sm">
              <span className="dim">{party}</span> <b>{conflict[party]}</b>
            </Text>
            {conflict.answers
              .filter((answer) => answer.party === party)
              .map((answer) => (
                <Text key={`${answer.kind} ${answer.annotator}`} size="xs" className="dim" title={answer.rationale ?? undefined}>
                  {clipped(answer.annotator, 40)}: {answer.answer.replaceAll("_", " ")}
                  {answer.confidence !== null && t(", {{confidence}} sure", { confidence: percent(answer.confidence, 0) })}
                </Text>
              ))}
          </div>
        ))}
      </Group>
    </PairCard>
  );
}
