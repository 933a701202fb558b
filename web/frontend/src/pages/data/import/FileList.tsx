import { ActionIcon, Button, Group, Modal, Stack, Table, Text } from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, type Schemas } from "../../../api/client";
import { useSession } from "../../../api/session";
import { Failure } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { bytes } from "../../../format/bytes";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";

/** Files that were uploaded, and uploads that were cut; each to look into, or to delete. */
export function FileList({ uploads, onFile }: { uploads: Schemas["UploadsReply"]; onFile: (name: string) => void }) {
  const queries = useQueryClient();
  const { name: me, permissions } = useSession();
  const [deleting, setDeleting] = useState<string | null>(null);
  const changed = () => queries.invalidateQueries({ queryKey: ["uploads"] });
  const remove = useMutation({
    mutationFn: (name: string) => api.DELETE("/api/uploads/files/{name}", { params: { path: { name } } }),
    onSuccess: () => {
      setDeleting(null);
      return changed();
    },
  });
  const discard = useMutation({
    mutationFn: (id: string) => api.DELETE("/api/uploads/{upload_id}", { params: { path: { upload_id: id } } }),
    onSuccess: changed,
  });
  const own = uploads.unfinished.filter(({ by }) => by === me || permissions.includes("administer"));
  if (uploads.files.length === 0 && own.length === 0) return null;
  return (
    <Wide label={t("Uploaded files")}>
      <Table verticalSpacing={4}>
        <Table.Tbody>
          {own.map(({ id, name, size, offset }) => (
            <Table.Tr key={id}>
              <Table.Td>{name}</Table.Td>
              <Table.Td className="dim" colSpan={2}>
                {t("{{done}} of {{size}} are here: choose the file again to go on", { done: bytes(offset), size: bytes(size) })}
              </Table.Td>
              <Table.Td ta="right">
                <Button size="compact-xs" variant="default" loading={discard.isPending && discard.variables === id} onClick={() => discard.mutate(id)}>
                  {t("Discard")}
                </Button>
              </Table.Td>
            </Table.Tr>
          ))}
          {uploads.files.map(({ name, size, at, by }) => (
            <Table.Tr key={name}>
              <Table.Td>{name}</Table.Td>
              <Table.Td className="dim" style={{ whiteSpace: "nowrap" }}>
                {bytes(size)}
              </Table.Td>
              <Table.Td className="dim" visibleFrom="xs">
                {by === null ? momentInWords(at) : t("{{when}}, by {{name}}", { when: momentInWords(at), name: by })}
              </Table.Td>
              <Table.Td>
                <Group gap={4} wrap="nowrap" justify="flex-end">
                  <Button size="compact-xs" variant="light" onClick={() => onFile(name)} aria-label={t("Look into {{name}}", { name })}>
                    {t("Look into it")}
                  </Button>
                  <ActionIcon size="sm" variant="subtle" color="red" onClick={() => setDeleting(name)} aria-label={t("Delete {{name}}", { name })}>
                    <IconTrash size={15} />
                  </ActionIcon>
                </Group>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Modal opened={deleting !== null} onClose={() => setDeleting(null)} title={t("Delete {{name}}?", { name: deleting ?? "" })}>
        <Stack>
          <Text size="sm">{t("The file goes for good. What was imported from it stays.")}</Text>
          {remove.error !== null && <Failure error={remove.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setDeleting(null)}>
              {t("Keep it")}
            </Button>
            <Button color="red" loading={remove.isPending} onClick={() => deleting !== null && remove.mutate(deleting)}>
              {t("Delete")}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Wide>
  );
}
