import { Anchor, Badge, Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { QueueArea } from "./QueueArea";
import { useEdit } from "./settings/useSettings";

type Note = Schemas["ItemNote"];

/** What annotators flagged and said of items, and what became of it. */
export function NotesPage() {
  const { queue = "" } = useParams();
  const { data, failureReason: error } = useQuery({
    queryKey: ["queue-notes", queue],
    queryFn: () => body(api.GET("/api/queues/{queue}/notes", { params: { path: { queue } } })),
    refetchInterval: 20_000,
  });
  return (
    <QueueArea>
      {data === undefined ? (
        error ? <Failure error={error} /> : <Waiting />
      ) : data.length === 0 ? (
        <Empty title={t("Nobody has flagged or commented on an item")}>{t("Annotators can do both beside every item.")}</Empty>
      ) : (
        <Stack gap="xs" component="ul" p={0} m={0} style={{ listStyle: "none" }}>
          {data.map((note) => (
            <NoteRow key={note.id} queue={queue} note={note} />
          ))}
        </Stack>
      )}
    </QueueArea>
  );
}

function NoteRow({ queue, note }: { queue: string; note: Note }) {
  const queries = useQueryClient();
  const [reply, setReply] = useState(note.reply);
  const open = note.resolved_at === null;
  const resolve = useEdit(queue, async (resolved: boolean) => {
    await body(api.PUT("/api/queues/{queue}/notes/{note}", { params: { path: { queue, note: note.id } }, body: { resolved, reply } }));
    await queries.invalidateQueries({ queryKey: ["queue-notes", queue] });
  });
  return (
    <li className="panel">
      <Group justify="space-between" gap="xs" align="start">
        <div style={{ flex: "1 1 300px", minWidth: 0 }}>
          <Group gap="xs">
            <Badge size="sm" variant="light" color={note.kind === "flag" ? "red" : "blue"} tt="none">
              {note.kind === "flag" ? t("flag") : t("comment")}
            </Badge>
            <Text fw={600} size="sm">
              {note.person}
            </Text>
            <Text size="sm" className="dim">
              {momentInWords(note.at)}
            </Text>
            {note.item !== null && (
              <Anchor size="sm" component={Link} to={`/annotate/queue/${encodeURIComponent(queue)}?item=${note.item}`}>
                {t("item {{item}}", { item: String(note.item) })}
              </Anchor>
            )}
          </Group>
          <Text size="sm" className="dim" dir="auto" lineClamp={2}>
            {note.excerpt}
          </Text>
          {note.text !== "" && (
            <Text dir="auto" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
              {note.text}
            </Text>
          )}
          {note.resolved_at !== null && (
            <Text size="sm" className="dim">
              {t("Resolved by {{who}}, {{when}}", { who: note.resolved_by ?? "", when: momentInWords(note.resolved_at) })}
              {note.reply !== "" && `: ${note.reply}`}
            </Text>
          )}
        </div>
        <Group gap="xs" wrap="nowrap">
          {open && <TextInput aria-label={t("Reply to {{who}}", { who: note.person })} placeholder={t("Reply")} maxLength={5000} value={reply} onChange={(event) => setReply(event.currentTarget.value)} />}
          <Button variant={open ? "light" : "subtle"} loading={resolve.isPending} onClick={() => resolve.mutate(open)}>
            {open ? t("Resolve") : t("Open again")}
          </Button>
        </Group>
      </Group>
    </li>
  );
}
