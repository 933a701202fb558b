import { Badge, Group, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Messages, ResponseTurns, type Turn } from "../../../components/Messages";
import { count } from "../../../format/count";
import { t } from "../../../i18n";

export type Form = "rendered" | "plain";

/** The conversation before the responses. */
export function PromptText({ turns, form }: { turns: Turn[]; form: Form }) {
  return (
    <section className="panel" aria-label={t("Prompt")}>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled */}
      <div className="long-text" tabIndex={0} role="group" aria-label={t("Turns of the prompt")}>
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
      aria-label={t("Response {{side}}", { side })}
      style={preferred ? { borderTopColor: "var(--mantine-color-green-6)", borderTopWidth: 3 } : undefined}
    >
      <Group justify="space-between" mb={6}>
        <Group gap="xs">
          <Text fw={600}>{t("Response {{side}}", { side })}</Text>
          {preferred && (
            <Badge color="green" variant="light" size="sm">{t("preferred")}</Badge>
          )}
        </Group>
        <Text size="xs" className="dim">
          {t("{{content}} characters", { content: count(text.content.length) })}
        </Text>
      </Group>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled */}
      <div className="long-text" tabIndex={0} role="group" aria-label={t("Text of response {{side}}", { side })}>
        <ResponseTurns text={text.content} turns={text.turns} plain={form === "plain"} />
      </div>
    </section>
  );
}
