import { Badge, Group, Select, Stack, Table, Text } from "@mantine/core";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { t } from "../../../i18n";
import { withRole, type Asked } from "./asked";
import { labelChoices, roleChoices } from "./roles";

interface Props {
  columns: Schemas["ShownColumn"][];
  targets: string[];
  asked: Asked;
  onChange: (asked: Asked) => void;
}

/** The columns of a file with their first values, and what each is: as recognised, or as chosen here. */
export function ColumnTable({ columns, targets, asked, onChange }: Props) {
  const roles = roleChoices(targets);
  const roleOf = (column: string) => Object.entries(asked.mapping).find(([, theirs]) => theirs === column)?.[0] ?? null;
  const uses: Record<string, string> = { read: t("read"), metadata: t("kept as metadata"), unused: t("not used") };
  return (
    <Wide label={t("Columns")}>
      <Table verticalSpacing={4} miw={560}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("Column")}</Table.Th>
            <Table.Th>{t("First values")}</Table.Th>
            <Table.Th w={240}>{t("What it is")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {columns.map(({ name, examples, codes, use }) => {
            const role = roleOf(name);
            const meant = role === "label" || (role === null && name === "label") ? codes : [];
            return (
              <Table.Tr key={name} className="import-column">
                <Table.Td>
                  <Text size="sm" fw={600}>
                    {name}
                  </Text>
                  {use != null && (
                    <Badge size="xs" variant="light" color={use === "read" ? "teal" : "gray"}>
                      {uses[use]}
                    </Badge>
                  )}
                </Table.Td>
                <Table.Td>
                  {examples.map((example, n) => (
                    <Text key={n} size="xs" lineClamp={1} dir="auto" className="import-value">
                      {example}
                    </Text>
                  ))}
                </Table.Td>
                <Table.Td>
                  <Select
                    size="xs"
                    data={roles}
                    value={role}
                    onChange={(chosen) => onChange(withRole(asked, name, chosen))}
                    placeholder={use == null ? t("choose") : ((use === "read" && roles.find(({ value }) => value === name)?.label) || t("as recognised"))}
                    clearable
                    searchable
                    aria-label={t("What {{column}} is", { column: name })}
                    clearButtonProps={{ "aria-label": t("As recognised") }}
                  />
                  {meant.length > 0 && (
                    <Stack gap={2} mt={4}>
                      {meant.map((code) => (
                        <Group key={code} gap={6} wrap="nowrap">
                          <Text size="xs" w={70} truncate title={code}>
                            {code} =
                          </Text>
                          <Select
                            size="xs"
                            flex={1}
                            data={labelChoices()}
                            value={asked.values[code] ?? null}
                            onChange={(label) => onChange({ ...asked, values: withCode(asked.values, code, label) })}
                            placeholder={t("as written")}
                            clearable
                            aria-label={t("What {{code}} means", { code })}
                            clearButtonProps={{ "aria-label": t("As written") }}
                          />
                        </Group>
                      ))}
                    </Stack>
                  )}
                </Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}

function withCode(values: Record<string, string>, code: string, label: string | null): Record<string, string> {
  const rest = Object.fromEntries(Object.entries(values).filter(([one]) => one !== code));
  return label === null ? rest : { ...rest, [code]: label };
}
