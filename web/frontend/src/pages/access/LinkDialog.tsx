import { Button, CopyButton, Group, Modal, Stack, Text, TextInput } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { moment } from "../../format/moment";

/** A link that was just made, to be copied: the server keeps only its digest. */
export function LinkDialog({ made: created, onClose }: { made: Schemas["LinkReply"] | null; onClose: () => void }) {
  const link = created === null ? "" : `${window.location.origin}${created.path}`;
  const invitation = created?.invitation;
  return (
    <Modal opened={created !== null} onClose={onClose} title="A link, shown this once" size="lg" centered>
      <Stack gap="sm">
        <Text size="sm">
          {invitation?.name == null
            ? `Whoever opens it makes one account with the role ${invitation?.role ?? ""}.`
            : `Whoever opens it sets a new password for ${invitation.name}; their sessions then end.`}{" "}
          It is good once, until {moment(invitation?.expires_at ?? 0)}. Send it over a channel that you trust.
        </Text>
        <Group gap="xs" align="end" wrap="nowrap">
          <TextInput
            label="Link"
            value={link}
            readOnly
            flex={1}
            onFocus={(event) => event.currentTarget.select()}
            data-autofocus
          />
          <CopyButton value={link}>
            {({ copied, copy }) => <Button onClick={copy}>{copied ? "Copied" : "Copy"}</Button>}
          </CopyButton>
        </Group>
      </Stack>
    </Modal>
  );
}
