import { Alert, Button, Group, Paper, Progress, Stack, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconUpload } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { useRef, useState, type DragEvent } from "react";

import type { Schemas } from "../../../api/client";
import { bytes } from "../../../format/bytes";
import { t } from "../../../i18n";
import { forgetTransfer, isGoing, stopTransfer, transfer, useTransfers, type Transfer } from "./transfers";

/** Where files are dropped or chosen, and those on their way. `onFile`: one is there. */
export function UploadZone({ uploads, onFile }: { uploads: Schemas["UploadsReply"] | undefined; onFile: (name: string) => void }) {
  const queries = useQueryClient();
  const transfers = useTransfers();
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const send = (chosen: FileList | null) => {
    const files = [...(chosen ?? [])]; // the list is emptied when the field is
    for (const file of files)
      void transfer(file).then((done) => {
        void queries.invalidateQueries({ queryKey: ["uploads"] });
        if (done.file === null || files.length !== 1) return;
        if (done.known) notifications.show({ message: `${done.file}: ${t("was here already: nothing was sent again")}` });
        onFile(done.file);
      });
  };
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    send(event.dataTransfer.files);
  };
  return (
    <Stack gap="xs">
      <Paper
        withBorder
        p="lg"
        className="upload-zone"
        data-over={over || undefined}
        onDragOver={(event) => {
          event.preventDefault();
          setOver(true);
        }}
        onDragLeave={() => setOver(false)}
        onDrop={drop}
      >
        <Stack gap={6} align="center">
          <IconUpload size={28} stroke={1.4} aria-hidden />
          <Text fw={600}>{t("Drop a file here")}</Text>
          <Button size="compact-md" onClick={() => input.current?.click()}>
            {t("Choose a file")}
          </Button>
          <input
            ref={input}
            type="file"
            hidden
            multiple
            aria-label={t("Choose a file")}
            onChange={(event) => {
              send(event.currentTarget.files);
              event.currentTarget.value = ""; // the same file may be chosen again
            }}
          />
          <Text size="sm" className="dim" ta="center">
            {t("JSON Lines, JSON, CSV, Parquet or Arrow, also compressed (gz, zst, xz).")}{" "}
            {uploads !== undefined && t("One file may have {{room}} now.", { room: bytes(uploads.room) })}
          </Text>
        </Stack>
      </Paper>
      {transfers.map((one) => (
        <TransferRow key={one.key} transfer={one} onFile={onFile} />
      ))}
    </Stack>
  );
}

function TransferRow({ transfer: { key, name, size, done, state, known, file, error }, transfer: one, onFile }: { transfer: Transfer; onFile: (name: string) => void }) {
  if (state === "failed")
    return (
      <Alert color="red" role="alert" title={t("{{name}} was not uploaded", { name })} withCloseButton closeButtonLabel={t("Close")} onClose={() => forgetTransfer(key)}>
        {error}
      </Alert>
    );
  const share = size === 0 ? 0 : Math.floor((100 * done) / size);
  const words = {
    comparing: t("looking whether it is here already"),
    sending: t("{{done}} of {{size}}", { done: bytes(done), size: bytes(size) }),
    waiting: t("the server does not answer: goes on by itself from {{done}}", { done: bytes(done) }),
    complete: known ? t("was here already: nothing was sent again") : t("uploaded"),
    stopped: t("stopped at {{done}}: choose the file again to go on", { done: bytes(done) }),
  }[state];
  return (
    <Paper withBorder p="xs">
      <Group justify="space-between" wrap="nowrap" gap="sm">
        <Text size="sm" truncate>
          <b>{name}</b> <span className="dim" role="status">{words}</span>
        </Text>
        {isGoing(one) ? (
          <Button size="compact-xs" variant="default" onClick={() => stopTransfer(key)}>
            {t("Stop")}
          </Button>
        ) : file !== null ? (
          <Button size="compact-xs" variant="light" onClick={() => onFile(file)}>
            {t("Look into it")}
          </Button>
        ) : (
          <Button size="compact-xs" variant="default" onClick={() => forgetTransfer(key)}>
            {t("Close")}
          </Button>
        )}
      </Group>
      {isGoing(one) && <Progress value={share} mt={6} size="sm" aria-label={t("{{name}}: {{share}} % uploaded", { name, share })} />}
    </Paper>
  );
}
