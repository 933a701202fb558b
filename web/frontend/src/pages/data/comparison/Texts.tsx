import { Badge, Group, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Markdown } from "../../../components/Markdown";
import { count } from "../../../format/count";

export type Form = "rendered" | "plain";

/** The conversation before the responses. */
export function PromptText({ turns, form }: { turns: Schemas["ConversationTurn"][]; form: Form }) {
  return (
    <section className="panel" aria-label="Prompt">
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled */}
      <div className="long-text" tabIndex={0} role="group" aria-label="Turns of the prompt">
        {turns.map((turn, index) => (
          <div key={index} className="turn">
            <Text size="xs" fw={600} className="dim">
              {turn.role}
            </Text>
            <Shown text={turn.content} form={form} />
          </div>
        ))}
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
        <Shown text={text.content} form={form} />
      </div>
    </section>
  );
}

function Shown({ text, form }: { text: string; form: Form }) {
  if (text.trim() === "") return <span className="dim">(empty)</span>;
  return form === "plain" ? <div className="plain">{text}</div> : <Markdown text={text} />;
}
