import { Alert, Center, Loader, Stack, Text } from "@mantine/core";
import { IconAlertTriangle, IconClockPause } from "@tabler/icons-react";
import type { ReactNode } from "react";

import { Problem } from "../api/problems";
import { t } from "../i18n";

/** Something is on its way. */
export function Waiting({ what = t("Loading") }: { what?: string }) {
  return (
    <Center p="xl" role="status" aria-label={what}>
      <Loader size="sm" />
    </Center>
  );
}

/** What went wrong, in the server's words; what passes by itself is said more calmly. */
export function Failure({ error }: { error: unknown }) {
  const passing = error instanceof Problem && error.passing;
  const message = error instanceof Error ? error.message : t("something went wrong");
  return (
    <Alert
      color={passing ? "yellow" : "red"}
      icon={passing ? <IconClockPause size={18} /> : <IconAlertTriangle size={18} />}
      title={passing ? t("Not at the moment") : t("That did not work")}
      role={passing ? "status" : "alert"}
    >
      {message}
      {passing && <Text size="sm">{t("Trying again by itself.")}</Text>}
    </Alert>
  );
}

/** There is nothing here, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Center p="xl">
      <Stack gap={4} align="center" maw={520} ta="center">
        <Text fw={600}>{title}</Text>
        <Text size="sm" component="div" className="dim">
          {children}
        </Text>
      </Stack>
    </Center>
  );
}
