import { Badge, Group, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Messages, ResponseTurns, type Turn } from "../../../components/Messages";
import { count } from "../../../format/count";

export type Form = "rendered" | "plain";

/** The conversation before the responses. */
export function PromptText({ turns, form }: { turns: Turn[]; form: Form }) {
  return (
    <section className="panel" aria-label="Prompt">
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled */}
      <div className="long-text" tabIndex={0} role="group" aria-label="Turns of the prompt">
        <Messages turns={turns} plain={form === "plain"} />
      </div>
    </section>
  );
}

interface ResponseProps {
  side: "A" | "B";
  text: Schemas["ResponseText"];
  label: string | null;
  form: Form;
}

/** One response; a green edge where the label in force prefers it. */
export function ResponseText({ side, text, label, form }: ResponseProps) {
  const preferred = label === side;
  return (
    <section
      className="panel"
      aria-label={`Response ${side}`}
      style={preferred ? { borderTopColor: "var(--mantine-color-green-6)", borderTopWidth: 3 } : undefined}
    >
      <Group justify="space-between" mb={6}>
        <Group gap="xs">
          <Text fw={600}>Response {side}</Text>
          {preferred && (
            <Badge color="green" variant="light" size="sm">
              preferred
            </Badge>
          )}
        </Group>
        <Text size="xs" className="dim">
          {count(text.content.length)} characters
        </Text>
      </Group>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled */}
      <div className="long-text" tabIndex={0} role="group" aria-label={`Text of response ${side}`}>
        <ResponseTurns text={text.content} turns={text.turns} plain={form === "plain"} />
      </div>
    </section>
  );
}
