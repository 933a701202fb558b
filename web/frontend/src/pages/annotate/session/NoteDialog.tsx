import { Button, Group, Modal, Stack, Text, Textarea } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body } from "../../../api/client";
import { Failure } from "../../../components/States";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import type { Item } from "../words";

interface NoteDialogProps {
  queue: string;
  item: Item | undefined;
  /** What is begun of a note: kept with the item's draft. */
  text: string;
  onText: (text: string) => void;
  opened: boolean;
  onClose: () => void;
}

/** Tell the curators about an item: a flag, or words; and what became of what was told before. The vote is another thing. */
export function NoteDialog({ queue, item, text, onText, opened, onClose }: NoteDialogProps) {
  return (
    <Modal opened={opened && item !== undefined} onClose={onClose} title={t("About this item, to the curators")} size="md" transitionProps={{ duration: 0 }}>
      {item !== undefined && <Note {...{ queue, item, text, onText, onClose }} />}
    </Modal>
  );
}

function Note({ queue, item, text, onText, onClose }: Omit<NoteDialogProps, "opened" | "item"> & { item: Item }) {
  const queries = useQueryClient();
  const [key, setKey] = useState(newKey); // the same note, however often it is sent
  const path = { params: { path: { queue } } };
  const { data: earlier } = useQuery({ queryKey: ["own notes", queue], queryFn: () => body(api.GET("/api/annotate/queues/{queue}/notes", path)) });
  const send = useMutation({
    mutationFn: (kind: "flag" | "comment") => body(api.POST("/api/annotate/queues/{queue}/notes", { ...path, body: { ticket: item.ticket, kind, text, key } })),
    onSuccess: () => {
      onText("");
      setKey(newKey());
      void queries.invalidateQueries({ queryKey: ["own notes", queue] });
      notifications.show({ color: "teal", message: t("Told. The curators see it beside the item.") });
      onClose();
    },
  });
  const notes = earlier?.filter((note) => note.item === item.number) ?? [];
  return (
    <Stack gap="xs">
      {send.error !== null && <Failure error={send.error} />}
      <Textarea
        data-autofocus
        dir="auto"
        label={t("What is wrong, or what they should know")}
        description={t("A flag needs no words. Your vote is not changed by it.")}
        autosize
        minRows={3}
        maxRows={10}
        maxLength={5000}
        value={text}
        onChange={(event) => onText(event.currentTarget.value)}
      />
      <Group gap="xs">
        <Button color="yellow" variant="light" loading={send.isPending} onClick={() => send.mutate("flag")}>
          {t("Flag the item")}
        </Button>
        <Button variant="light" loading={send.isPending} disabled={text.trim() === ""} onClick={() => send.mutate("comment")}>
          {t("Comment only")}
        </Button>
      </Group>
      {notes.map((note) => (
        <div key={note.id} className="session-note">
          <Text size="xs" className="dim">
            {note.kind === "flag" ? t("You flagged it") : t("You commented")}, {momentInWords(note.at)}
          </Text>
          <Text size="sm" dir="auto" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
            {note.text}
          </Text>
          {note.resolved_by !== null && (
            <Text size="sm" dir="auto" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
              <strong>{t("Settled by {{name}}", { name: note.resolved_by })}</strong> {note.reply}
            </Text>
          )}
        </div>
      ))}
    </Stack>
  );
}

/** `crypto.randomUUID` is not there on pages that come without TLS. */
function newKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
