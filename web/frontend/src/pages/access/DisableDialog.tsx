import { Button, Group, Modal, Stack, Text } from "@mantine/core";

import { t } from "../../i18n";

interface DisableProps {
  /** Whose account; null: the dialog is closed. */
  name: string | null;
  busy: boolean;
  onConfirm: (name: string) => void;
  onClose: () => void;
}

/** Asks once before somebody is signed out. */
export function DisableDialog({ name, busy, onConfirm, onClose }: DisableProps) {
  return (
    <Modal opened={name !== null} onClose={onClose} title={t("Disable {{name}}?", { name: name ?? "" })} centered>
      <Stack gap="sm">
        <Text size="sm">
          {t("Their sessions end now, and they cannot sign in any more. Their votes stay, and the account can be enabled again.")}
        </Text>
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>{t("Cancel")}</Button>
          <Button color="red" loading={busy} onClick={() => name !== null && onConfirm(name)}>
            {t("Disable")}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
