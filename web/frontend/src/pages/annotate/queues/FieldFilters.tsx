import { ActionIcon, Group, Select, Stack, TagsInput, Text } from "@mantine/core";
import { IconX } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { t } from "../../../i18n";

export type ChosenField = Schemas["AskedField"] & { attribute: boolean };

/** Which comparisons by what is known of them: attributes, and the fields that their source kept beside each. */
export function FieldFilters({ chosen, choose }: { chosen: ChosenField[]; choose: (chosen: ChosenField[]) => void }) {
  const known = useQuery({
    queryKey: ["comparison-fields"],
    queryFn: () => body(api.GET("/api/comparison-fields")),
    staleTime: 60_000,
  });
  const fields = known.data ?? [];
  const key = ({ name, attribute }: { name: string; attribute: boolean }) => `${attribute ? "attribute" : "field"} ${name}`;
  const free = fields.filter((field) => !chosen.some((other) => key(other) === key(field)));
  if (fields.length === 0 && chosen.length === 0)
    return known.data === undefined ? null : (
      <Text size="sm" className="dim">
        {t("The sources kept no fields beside their pairs, and no attributes have been made, to choose by.")}
      </Text>
    );
  return (
    <Stack gap="xs">
      {chosen.map((field, at) => (
        <Group key={key(field)} align="end" wrap="nowrap" gap="xs">
          <TagsInput
            style={{ flex: 1 }}
            label={field.attribute ? t("Attribute {{name}}", { name: field.name }) : t("Field {{name}}", { name: field.name })}
            description={t("Any of these; Enter ends each")}
            splitChars={[]}
            data={fields.find((other) => key(other) === key(field))?.values.map(({ value }) => value) ?? []}
            value={field.values}
            onChange={(values) => choose(chosen.map((other, index) => (index === at ? { ...other, values } : other)))}
          />
          <ActionIcon variant="subtle" color="gray" mb={4} onClick={() => choose(chosen.filter((_, index) => index !== at))} aria-label={t("Do not choose by {{name}}", { name: field.name })}>
            <IconX size={16} />
          </ActionIcon>
        </Group>
      ))}
      {free.length > 0 && (
        <Select
          label={t("Choose by a field or attribute")}
          description={t("What the source kept beside each comparison, and what was found of it")}
          searchable
          value={null}
          data={free.map((field) => ({ value: key(field), label: field.name }))}
          onChange={(picked) => {
            const field = free.find((other) => key(other) === picked);
            if (field !== undefined) choose([...chosen, { name: field.name, attribute: field.attribute, values: [] }]);
          }}
        />
      )}
    </Stack>
  );
}
