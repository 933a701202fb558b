import { Group, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

import { t } from "../../../i18n";

/** A titled part of the page; what is too wide scrolls in it. */
export function Section({ title, note, children }: { title: string; note?: ReactNode; children: ReactNode }) {
  return (
    <section className="panel" aria-label={title}>
      <Group justify="space-between" mb={4} gap="xs">
        <Title order={2}>{title}</Title>
        {note !== undefined && (
          <Text size="xs" className="dim" component="div">
            {note}
          </Text>
        )}
      </Group>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled */}
      <div className="wide" tabIndex={0} role="group" aria-label={t("{{title}}, contents", { title })}>
        {children}
      </div>
    </section>
  );
}
