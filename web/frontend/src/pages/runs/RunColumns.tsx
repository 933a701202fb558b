import { Button, Popover, Stack, Text, TagsInput } from "@mantine/core";
import { IconColumns } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../api/client";
import { t } from "../../i18n";

const STORED = "assay.runs.columns";
const FIELD = /^(config|metrics)\.[^"\\\s<>=!~]{1,200}$/;

/** The columns that were chosen last in this browser; the address comes before them. */
export function rememberedColumns(): string[] {
  try {
    const stored: unknown = JSON.parse(window.localStorage.getItem(STORED) ?? "[]");
    return Array.isArray(stored) ? stored.filter((name): name is string => typeof name === "string" && FIELD.test(name)) : [];
  } catch {
    return [];
  }
}

/** Settings and figures as columns of the list. */
export function RunColumnsMenu({ columns, onChange }: { columns: string[]; onChange: (columns: string[]) => void }) {
  const [opened, setOpened] = useState(false);
  const { data } = useQuery({
    queryKey: ["runs", "columns"],
    enabled: opened,
    queryFn: () => body(api.GET("/api/runs/columns")),
  });
  const choose = (names: string[]) => {
    const fields = names.filter((name) => FIELD.test(name)).slice(0, 30);
    window.localStorage.setItem(STORED, JSON.stringify(fields));
    onChange(fields);
  };
  return (
    <Popover opened={opened} onChange={setOpened} width={360} position="bottom-start" withinPortal trapFocus>
      <Popover.Target>
        <Button variant="default" leftSection={<IconColumns size={14} />} onClick={() => setOpened(!opened)} aria-expanded={opened}>
          {columns.length === 0 ? t("Columns") : t("{{count}} columns", { count: columns.length })}
        </Button>
      </Popover.Target>
      <Popover.Dropdown>
        <Stack gap="xs">
          <TagsInput
            label={t("Settings and figures")}
            description={t("Such as config.learning_rate or metrics.accuracy; a click on the head sorts.")}
            value={columns}
            onChange={choose}
            data={data?.fields ?? []}
            limit={30}
            maxDropdownHeight={260}
            comboboxProps={{ withinPortal: false }}
            data-autofocus
          />
          <Text size="xs" className="dim">
            {t("They are remembered in this browser and are part of the link.")}
          </Text>
        </Stack>
      </Popover.Dropdown>
    </Popover>
  );
}
