import { ActionIcon, Button, Group, Stack, Textarea } from "@mantine/core";
import { IconPlus, IconX } from "@tabler/icons-react";

import { t } from "../../../i18n";

/** The responses to be scored, numbered as in the table below. */
export function ResponsesEditor({ responses, onChange }: { responses: string[]; onChange: (responses: string[]) => void }) {
  return (
    <Stack gap={6} component="fieldset" style={{ border: 0, padding: 0, margin: 0 }}>
      <legend style={{ fontWeight: 600, marginBottom: 4 }}>{t("Responses")}</legend>
      {responses.map((text, index) => (
        <Group key={index} gap={6} align="start" wrap="nowrap">
          <Textarea
            aria-label={t("Response {{index}}", { index: index + 1 })}
            placeholder={t("Response {{index}}", { index: index + 1 })}
            autosize
            minRows={2}
            maxRows={12}
            value={text}
            onChange={(event) =>
              onChange(responses.map((other, at) => (at === index ? event.currentTarget.value : other)))
            }
            style={{ flexGrow: 1 }}
          />
          <ActionIcon
            variant="subtle"
            color="gray"
            aria-label={t("Remove response {{index}}", { index: index + 1 })}
            disabled={responses.length === 1}
            onClick={() => onChange(responses.filter((_, at) => at !== index))}
          >
            <IconX size={16} />
          </ActionIcon>
        </Group>
      ))}
      <Group>
        <Button
          variant="default"
          size="compact-xs"
          leftSection={<IconPlus size={14} />}
          disabled={responses.length >= 64}
          onClick={() => onChange([...responses, ""])}
        >{t("Add response")}</Button>
      </Group>
    </Stack>
  );
}
