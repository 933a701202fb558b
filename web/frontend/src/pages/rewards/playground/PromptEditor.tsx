import { ActionIcon, Button, Group, Select, Stack, Textarea } from "@mantine/core";
import { IconPlus, IconX } from "@tabler/icons-react";

import { t } from "../../../i18n";
import type { Turn } from "./draft";

const ROLES: Turn["role"][] = ["system", "user", "assistant", "tool"];

/** The conversation before the response, a message each. */
export function PromptEditor({ turns, onChange }: { turns: Turn[]; onChange: (turns: Turn[]) => void }) {
  const change = (index: number, changed: Partial<Turn>) =>
    onChange(turns.map((turn, at) => (at === index ? { ...turn, ...changed } : turn)));
  const add = () => onChange([...turns, { role: turns.at(-1)?.role === "user" ? "assistant" : "user", content: "" }]);
  return (
    <Stack gap={6} component="fieldset" style={{ border: 0, padding: 0, margin: 0 }}>
      <legend style={{ fontWeight: 600, marginBottom: 4 }}>{t("Prompt")}</legend>
      {turns.map((turn, index) => (
        <Group key={index} gap={6} align="start" wrap="nowrap">
          <Select
            aria-label={t("Role of message {{index}}", { index: index + 1 })}
            data={ROLES}
            value={turn.role}
            onChange={(role) => role !== null && change(index, { role: role as Turn["role"] })}
            allowDeselect={false}
            w={100}
            style={{ flexShrink: 0 }}
          />
          <Textarea
            aria-label={t("Message {{index}}", { index: index + 1 })}
            placeholder={index === turns.length - 1 ? t("What the responses answer") : undefined}
            autosize
            minRows={2}
            maxRows={12}
            value={turn.content}
            onChange={(event) => change(index, { content: event.currentTarget.value })}
            style={{ flexGrow: 1 }}
          />
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={t("Remove message {{index}}", { index: index + 1 })}
            disabled={turns.length === 1}
            onClick={() => onChange(turns.filter((_, at) => at !== index))}
          >
            <IconX size={16} />
          </ActionIcon>
        </Group>
      ))}
      <Group>
        <Button variant="default" size="compact-xs" leftSection={<IconPlus size={14} />} onClick={add}>
          {t("Add message")}
        </Button>
      </Group>
    </Stack>
  );
}
