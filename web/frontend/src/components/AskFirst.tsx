import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { t } from "../i18n";
import { Failure } from "./States";

/** A question before an act that cannot be taken back. `keep`: the safe answer, which has the focus. */
export function AskFirst({
  opened,
  title,
  act,
  keep,
  pending,
  error,
  onAct,
  onClose,
  refused = false,
  children,
}: {
  opened: boolean;
  title: string;
  act: string;
  keep: string;
  pending: boolean;
  error: unknown;
  onAct: () => void;
  onClose: () => void;
  /** It cannot be done: the text says why, and the act is not offered. */
  refused?: boolean;
  children: ReactNode;
}) {
  return (
    <Modal opened={opened} onClose={onClose} title={title} centered closeButtonProps={{ "aria-label": t("Close") }}>
      <Stack gap="sm">
        <Text size="sm" component="div">
          {children}
        </Text>
        {error !== null && <Failure error={error} />}
        <Group justify="end" gap="xs">
          <Button variant="default" onClick={onClose} data-autofocus>
            {keep}
          </Button>
          {!refused && (
            <Button color="red.9" c="white" loading={pending} onClick={onAct}>
              {act}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}
