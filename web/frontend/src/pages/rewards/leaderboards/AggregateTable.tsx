import { ActionIcon, Group, Table, Text, Title, UnstyledButton } from "@mantine/core";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useState } from "react";

import { Wide } from "../../../components/Wide";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import type { Result } from "./results";

/** Every aggregate by name; a name with parts opens. Choosing one shows it in the chart above. */
export function AggregateTable({
  results,
  names,
  part,
  onPart,
}: {
  results: Result[];
  names: string[];
  part: string;
  onPart: (name: string) => void;
}) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const all = [...new Set(results.flatMap((result) => result.aggregates.map(({ name }) => name)))];
  const parents = new Set(all.filter((name) => name.includes("/")).map(parentOf));
  // A group that has no figure of its own still gets a row to open.
  const rows = order([...new Set([...all, ...parents])]).filter((name) => {
    const parent = name.includes("/") ? parentOf(name) : null;
    return parent === null || open.has(parent);
  });
  const toggle = (name: string) => {
    const next = new Set(open);
    if (!next.delete(name)) next.add(name);
    setOpen(next);
  };
  return (
    <div>
      <Title order={3} mb={4}>{t("Parts")}</Title>
      <Wide label={t("Parts")}>
        <Table withTableBorder highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Aggregate")}</Table.Th>
              {names.map((name) => (
                <Table.Th key={name} ta="right">
                  {name}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map((name) => {
              const below = name.includes("/");
              return (
                <Table.Tr key={name} bg={name === part ? "var(--mantine-primary-color-light)" : undefined}>
                  <Table.Th scope="row" fw={400}>
                    <Group gap={4} wrap="nowrap" pl={below ? 40 : 0}>
                      {!below &&
                        (parents.has(name) ? (
                          <ActionIcon
                            size="xs"
                            variant="subtle"
                            color="gray"
                            aria-expanded={open.has(name)}
                            aria-label={t("Parts of {{name}}", { name })}
                            onClick={() => toggle(name)}
                          >
                            {open.has(name) ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />}
                          </ActionIcon>
                        ) : (
                          <span style={{ width: 18 }} />
                        ))}
                      {all.includes(name) ? (
                        <UnstyledButton fz="sm" fw={name === part ? 700 : 400} aria-pressed={name === part} onClick={() => onPart(name)} className="rewards-link">
                          {below ? name.slice(name.indexOf("/") + 1) : name}
                        </UnstyledButton>
                      ) : (
                        <Text size="sm">{name}</Text>
                      )}
                    </Group>
                  </Table.Th>
                  {results.map((result, index) => {
                    const aggregate = result.aggregates.find((one) => one.name === name);
                    return (
                      <Table.Td key={index} ta="right" className="rewards-number">
                        {figure(aggregate?.value)}{" "}
                        {aggregate?.low != null && (
                          <Text span size="xs" className="dim">
                            {interval(aggregate.low, aggregate.high)}
                          </Text>
                        )}
                      </Table.Td>
                    );
                  })}
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Wide>
    </div>
  );
}

function parentOf(name: string): string {
  return name.slice(0, name.indexOf("/"));
}

/** Each group with its parts right below it, groups in the order in which they come. */
function order(names: string[]): string[] {
  const tops = names.filter((name) => !name.includes("/"));
  return tops.flatMap((top) => [top, ...names.filter((name) => name.startsWith(`${top}/`))]);
}
