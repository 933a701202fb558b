import { Badge, Group, Paper, SimpleGrid, Stack, Text, Title } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Messages } from "../../../components/Messages";
import { count } from "../../../format/count";
import { t } from "../../../i18n";

/** Rows as they would be imported: the conversation, its responses and what is said of them. */
export function Examples({ preview }: { preview: Schemas["ImportPreview"] }) {
  return (
    <Stack gap="xs">
      {preview.examples.map((example, n) => (
        <Example key={n} example={example} />
      ))}
    </Stack>
  );
}

function Example({ example: { row, prompt, responses, label, remarks } }: { example: Schemas["ShownExample"] }) {
  const pair = responses.length === 2;
  const better = label === "first" ? 0 : label === "second" ? 1 : null;
  const words: Record<string, string> = { tie: t("Tie"), both_good: t("Both good"), both_bad: t("Both bad"), skip: t("Skipped") };
  return (
    <Paper withBorder p="sm" className="import-example">
      <Group gap="xs" mb={6}>
        <Text size="xs" className="dim">
          {t("Row {{row}}", { row: count(row) })}
        </Text>
        {pair && better === null && (
          <Badge size="xs" variant="light" color="gray">
            {label === null ? t("no label") : (words[label] ?? label)}
          </Badge>
        )}
        {remarks.map((words, n) => (
          <Badge key={n} size="xs" variant="light" maw="100%" tt="none">
            {words}
          </Badge>
        ))}
      </Group>
      <Messages turns={prompt.map(shown)} plain={false} />
      <SimpleGrid cols={{ base: 1, sm: pair ? 2 : 1 }} spacing="xs" mt="xs">
        {responses.map((response, n) => (
          <Paper key={n} withBorder p="xs" data-better={better === n || undefined}>
            <Group gap={6} mb={4}>
              {pair && <Text size="xs" fw={600}>{n === 0 ? "A" : "B"}</Text>}
              {better === n && (
                <Badge size="xs" color="teal" variant="light">
                  {t("better")}
                </Badge>
              )}
            </Group>
            <Messages turns={[shown(response)]} plain={false} expected="assistant" />
          </Paper>
        ))}
      </SimpleGrid>
    </Paper>
  );
}

function shown({ role, content, cut }: Schemas["ShownText"]): { role: string; content: string } {
  return { role, content: cut ? `${content} …` : content };
}

/** Which rows would be refused, and why. */
export function Refused({ preview: { rejected, rejects } }: { preview: Schemas["ImportPreview"] }) {
  const reasons = Object.entries(rejected);
  if (reasons.length === 0) return null;
  return (
    <section>
      <Title order={3} size="h5">
        {t("Would be refused")}
      </Title>
      {reasons.slice(0, 12).map(([reason, rows]) => (
        <Text key={reason} size="sm">
          <b>{count(rows)}</b>: {reason}
        </Text>
      ))}
      <Text size="sm" className="dim">
        {t("The first of them: rows {{rows}}. All are kept with their reason after the import.", { rows: [...new Set(rejects.map(({ row }) => count(row)))].join(", ") })}
      </Text>
    </section>
  );
}
