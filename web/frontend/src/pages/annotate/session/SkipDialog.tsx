import { Button, Modal, Stack } from "@mantine/core";

import { useWords, type SkipReason } from "../words";
import { useKeys } from "../useKeys";

/** Why no preference? One key, or Escape back to the item. */
export function SkipDialog({ opened, onClose, onSkip }: { opened: boolean; onClose: () => void; onSkip: (reason: SkipReason) => void }) {
  const { skips } = useWords();
  useKeys(opened, (key) => {
    const skip = skips.find((option) => option.key === key);
    if (skip !== undefined) onSkip(skip.name as SkipReason);
    return skip !== undefined;
  });
  return (
    <Modal opened={opened} onClose={onClose} title="Skip: why?" size="sm" transitionProps={{ duration: 0 }}>
      <Stack gap="xs" pt={4}>
        {skips.map(({ name, key, label }, n) => (
          <Button key={key} data-autofocus={n === 0 || undefined} variant="light" color="gray" justify="space-between" rightSection={<kbd aria-hidden>{key}</kbd>} aria-keyshortcuts={key} onClick={() => onSkip(name as SkipReason)}>
            {label}
          </Button>
        ))}
      </Stack>
    </Modal>
  );
}
