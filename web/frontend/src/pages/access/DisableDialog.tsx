import { Button, Group, Modal, Stack, Text } from "@mantine/core";

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
    <Modal opened={name !== null} onClose={onClose} title={`Disable ${name ?? ""}?`} centered>
      <Stack gap="sm">
        <Text size="sm">
          Their sessions end now, and they cannot sign in any more. Their votes stay, and the account can be enabled again.
        </Text>
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button color="red" loading={busy} onClick={() => name !== null && onConfirm(name)}>
            Disable
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
