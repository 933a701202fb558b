import { Button, Modal, Stack } from "@mantine/core";

import { t } from "../../../i18n";
import { optionKey } from "../keys/actions";
import { Key } from "../keys/Key";
import { useKeymap } from "../keys/keymap";
import { useKeys } from "../keys/useKeys";
import { useWords, type SkipReason } from "../words";

/** Why no preference? One key, or Escape back to the item. */
export function SkipDialog({ opened, onClose, onSkip }: { opened: boolean; onClose: () => void; onSkip: (reason: SkipReason) => void }) {
  const { skips } = useWords();
  const keymap = useKeymap();
  useKeys(
    opened,
    skips.map((skip) => [optionKey("skip", skip), () => onSkip(skip.name as SkipReason)]),
  );
  return (
    <Modal opened={opened} onClose={onClose} title={t("Skip: why?")} size="sm" transitionProps={{ duration: 0 }}>
      <Stack gap="xs" pt={4}>
        {skips.map((skip, n) => (
          <Button
            key={skip.name}
            data-autofocus={n === 0 || undefined}
            variant="light"
            color="gray"
            justify="space-between"
            rightSection={<Key of={optionKey("skip", skip)} />}
            aria-keyshortcuts={keymap.label(optionKey("skip", skip))}
            onClick={() => onSkip(skip.name as SkipReason)}
          >
            {t(skip.label)}
          </Button>
        ))}
      </Stack>
    </Modal>
  );
}
