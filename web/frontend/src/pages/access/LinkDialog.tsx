import { Button, CopyButton, Group, Modal, Stack, Text, TextInput } from "@mantine/core";

import type { Schemas } from "../../api/client";
import { moment } from "../../format/moment";
import { t } from "../../i18n";
import { roleName } from "./roles";

/** A link that was just made, to be copied: the server keeps only its digest. */
export function LinkDialog({ made: created, onClose }: { made: Schemas["LinkReply"] | null; onClose: () => void }) {
  const link = created === null ? "" : `${window.location.origin}${created.path}`;
  const invitation = created?.invitation;
  return (
    <Modal opened={created !== null} onClose={onClose} title={t("A link, shown this once")} size="lg" centered>
      <Stack gap="sm">
        <Text size="sm">
          {invitation?.name == null
            ? t("Whoever opens it makes one account with the role {{role}}.", { role: invitation ? roleName(invitation.role) : "" })
            : t("Whoever opens it sets a new password for {{name}}; their sessions then end.", { name: invitation.name })}{" "}
          {t("It is good once, until {{moment}}. Send it over a channel that you trust.", { moment: moment(invitation?.expires_at ?? 0) })}
        </Text>
        <Group gap="xs" align="end" wrap="nowrap">
          <TextInput
            label={t("Link")}
            value={link}
            readOnly
            flex={1}
            onFocus={(event) => event.currentTarget.select()}
            data-autofocus
          />
          <CopyButton value={link}>
            {({ copied, copy }) => <Button onClick={copy}>{copied ? t("Copied") : t("Copy")}</Button>}
          </CopyButton>
        </Group>
      </Stack>
    </Modal>
  );
}
