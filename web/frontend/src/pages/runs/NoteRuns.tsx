import { Button, Group, Modal, Stack, TagsInput, Text, Textarea } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { Failure } from "../../components/States";
import { t } from "../../i18n";

/** Change what is written about runs; lists and pages show it at once. */
export function useNoteChange(onSuccess?: () => void) {
  const queries = useQueryClient();
  return useMutation({
    mutationFn: (change: Omit<Schemas["NoteChange"], "add_tags" | "remove_tags"> & Partial<Schemas["NoteChange"]>) =>
      body(api.POST("/api/runs/notes", { body: { add_tags: [], remove_tags: [], ...change } })),
    onSuccess: async (_, { runs }) => {
      await Promise.all([queries.invalidateQueries({ queryKey: ["runs"] }), ...runs.map((run) => queries.invalidateQueries({ queryKey: ["run", run], exact: true }))]);
      onSuccess?.();
    },
  });
}

/** Tag or archive the runs that are chosen in the list. */
export function NoteRuns({ runs, done }: { runs: string[]; done: () => void }) {
  const [opened, { open, close }] = useDisclosure();
  const [add, setAdd] = useState<string[]>([]);
  const [remove, setRemove] = useState<string[]>([]);
  const known = useQuery({ queryKey: ["runs", "columns"], enabled: opened, queryFn: () => body(api.GET("/api/runs/columns")) });
  const tag = useNoteChange(close);
  const archive = useNoteChange(done);
  return (
    <>
      <Button variant="subtle" size="compact-sm" onClick={open}>
        {t("Tag {{count}} runs", { count: runs.length })}
      </Button>
      <Button variant="subtle" size="compact-sm" loading={archive.isPending} onClick={() => archive.mutate({ runs, archived: true })}>
        {t("Archive them")}
      </Button>
      <Button variant="subtle" size="compact-sm" loading={archive.isPending} onClick={() => archive.mutate({ runs, archived: false })}>
        {t("Restore them")}
      </Button>
      {archive.error !== null && <Failure error={archive.error} />}
      <Modal opened={opened} onClose={close} title={t("Tag {{count}} runs", { count: runs.length })} centered closeButtonProps={{ "aria-label": t("Close") }}>
        <Stack gap="sm">
          <TagsInput label={t("Add tags")} value={add} onChange={setAdd} data={known.data?.tags ?? []} data-autofocus />
          <TagsInput label={t("Take tags away")} value={remove} onChange={setRemove} data={known.data?.tags ?? []} />
          {tag.error !== null && <Failure error={tag.error} />}
          <Group justify="end">
            <Button disabled={add.length + remove.length === 0} loading={tag.isPending} onClick={() => tag.mutate({ runs, add_tags: add, remove_tags: remove })}>
              {t("Save")}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}

/** The note and the tags of one run, to be read, and changed by who may. */
export function RunNote({ run, allowed }: { run: Schemas["RunRow"]; allowed: boolean }) {
  const [opened, { open, close }] = useDisclosure();
  const [note, setNote] = useState(run.note);
  const [tags, setTags] = useState(run.tags);
  const known = useQuery({ queryKey: ["runs", "columns"], enabled: opened, queryFn: () => body(api.GET("/api/runs/columns")) });
  const change = useNoteChange(close);
  const begin = () => {
    setNote(run.note);
    setTags(run.tags);
    open();
  };
  return (
    <>
      {run.note !== "" && (
        <Text size="sm" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }} dir="auto">
          {run.note}
        </Text>
      )}
      {allowed && (
        <Button variant="subtle" size="compact-sm" onClick={begin}>
          {run.note === "" && run.tags.length === 0 ? t("Add a note or tags") : t("Change the note or tags")}
        </Button>
      )}
      <Modal opened={opened} onClose={close} title={t("Note and tags")} centered closeButtonProps={{ "aria-label": t("Close") }}>
        <Stack gap="sm">
          <Textarea label={t("Note")} autosize minRows={3} maxRows={14} maxLength={20_000} value={note} onChange={(event) => setNote(event.currentTarget.value)} data-autofocus />
          <TagsInput label={t("Tags")} value={tags} onChange={setTags} data={known.data?.tags ?? []} />
          {change.error !== null && <Failure error={change.error} />}
          <Group justify="end">
            <Button
              loading={change.isPending}
              onClick={() => change.mutate({ runs: [run.id], note, add_tags: tags.filter((tag) => !run.tags.includes(tag)), remove_tags: run.tags.filter((tag) => !tags.includes(tag)) })}
            >
              {t("Save")}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
