import { Button, CopyButton, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import type { ReactNode } from "react";

import { t } from "../i18n";

/** A secret that was just made, to be copied: the server keeps only its hash. `children`: what it is good for. */
export function SecretDialog({
  secret,
  title,
  label,
  onClose,
  children,
}: {
  secret: string | null;
  title: string;
  label: string;
  onClose: () => void;
  children?: ReactNode;
}) {
  return (
    <Modal opened={secret !== null} onClose={onClose} title={title} size="lg" centered closeButtonProps={{ "aria-label": t("Close") }}>
      <Stack gap="sm">
        {children !== undefined && <Text size="sm">{children}</Text>}
        <Group gap="xs" align="end" wrap="nowrap">
          <TextInput label={label} value={secret ?? ""} readOnly flex={1} onFocus={(event) => event.currentTarget.select()} data-autofocus />
          <CopyButton value={secret ?? ""}>
            {({ copied, copy }) => <Button onClick={copy}>{copied ? t("Copied") : t("Copy")}</Button>}
          </CopyButton>
        </Group>
      </Stack>
    </Modal>
  );
}
