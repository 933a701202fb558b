import { Group, Stack, Title } from "@mantine/core";
import type { ReactNode } from "react";
import { Navigate, Route, Routes } from "react-router";

import { t } from "../i18n";
import { AreaTabs } from "./AreaTabs";
import { Empty } from "./States";

/** An area of several parts: its title, their tabs, the first of them where none is named. `children`: their routes. */
export function AreaPage({
  path,
  title,
  parts,
  className,
  actions,
  children,
}: {
  path: string;
  title: string;
  parts: [{ value: string; label: string }, ...{ value: string; label: string }[]];
  className?: string;
  /** Beside the title. */
  actions?: ReactNode;
  children: ReactNode;
}) {
  return (
    <Stack gap="sm" className={className}>
      <Group justify="space-between">
        <Title order={1}>{title}</Title>
        {actions}
      </Group>
      <AreaTabs path={path} label={title} parts={parts}>
        <Routes>
          <Route index element={<Navigate to={`${path}/${parts[0].value}`} replace />} />
          {children}
          <Route path="*" element={<Empty title={t("There is no such page")}>{t("Choose a part above.")}</Empty>} />
        </Routes>
      </AreaTabs>
    </Stack>
  );
}
