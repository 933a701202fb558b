import { ActionIcon, Badge, Box, Button, Group, Menu, Progress, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconDots } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { t } from "../../../i18n";
import { Guideline } from "../Guideline";
import { shareInWords } from "../words";
import { DecideDialog } from "./DecideDialog";
import { questionInWords, queuePages } from "./questions";
import { useEdit } from "./settings/useSettings";

type Queue = Schemas["QueueReply"];

/** Questions on one response: their labels stand as they are, and nothing is decided by votes. */
const SINGLE_RESPONSES: ReadonlySet<string> = new Set(["rating", "steps", "spans"]);

/** One queue: what it asks, how far it is, and the ways in. Exact counts are for curators. */
export function QueueRow({ queue }: { queue: Queue }) {
  const annotator = useAllows("vote");
  const curator = useAllows("curate");
  const at = `/annotate/queue/${encodeURIComponent(queue.name)}`;
  const conflicts = queue.counts?.conflicts ?? 0;
  return (
    <Box component="li" className="panel">
      <Group justify="space-between" gap="xs">
        <Box style={{ flex: "1 1 260px", minWidth: 0 }}>
          <Group gap="xs">
            <Text fw={600} style={{ overflowWrap: "anywhere" }}>
              {queue.title}
            </Text>
            {queue.project !== "default" && (
              <Badge size="sm" variant="light" tt="none">
                {queue.project}
              </Badge>
            )}
            {queue.question !== "pair" && (
              <Badge size="sm" variant="light" color="blue" tt="none">
                {questionInWords(queue.question)}
              </Badge>
            )}
            {queue.closed && (
              <Badge size="sm" variant="light" color="gray">
                {t("closed")}
              </Badge>
            )}
            {queue.paused && !queue.closed && (
              <Badge size="sm" variant="light" color="yellow">
                {t("paused")}
              </Badge>
            )}
            {!queue.assigned && (
              <Badge size="sm" variant="light" color="gray" tt="none">
                {t("for others")}
              </Badge>
            )}
            <Text size="sm" className="dim">
              {queue.overlap === "all" ? t("everyone votes on everything") : t("{{count}} people each", { count: queue.overlap })}
            </Text>
          </Group>
          {queue.description !== "" && (
            <Text size="sm" dir="auto">
              {queue.description}
            </Text>
          )}
          {queue.guideline !== "" && (
            <Text component="div" size="sm" className="dim" lineClamp={2}>
              <Guideline text={queue.guideline} />
            </Text>
          )}
        </Box>
        <Box w={200}>
          <Progress value={100 * queue.share} aria-label={t("{{title}}: done", { title: queue.title })} mb={2} />
          <Text size="sm" className="dim">
            {queue.counts === null
              ? shareInWords(queue.share)
              : `${t("{{done}} of {{total}} done", { done: queue.counts.done, total: queue.counts.items })}, ${t("{{count}} votes", { count: queue.counts.votes })}`}
          </Text>
        </Box>
        <Text size="sm" className="dim" w={150}>
          {t("{{count}} by you", { count: queue.mine })}, {t("{{count}} voting now", { count: queue.voting })}
        </Text>
        <Group gap={6} wrap="nowrap">
          {curator && conflicts > 0 && (
            <Button component={Link} to={`${at}/adjudicate`} variant="light" color="violet">
              {t("Adjudicate {{count}}", { count: conflicts })}
            </Button>
          )}
          {annotator && queue.assigned && (
            <Button component={Link} to={at} variant={queue.closed || queue.paused ? "light" : "filled"} aria-label={t("Annotate {{title}}", { title: queue.title })}>
              {t("Annotate")}
            </Button>
          )}
          {curator && <QueueMenu queue={queue} at={at} />}
        </Group>
      </Group>
    </Box>
  );
}

function QueueMenu({ queue, at }: { queue: Queue; at: string }) {
  const queries = useQueryClient();
  const [deciding, setDeciding] = useState(false);
  const path = { params: { path: { queue: queue.name } } };
  const turn = useMutation({
    mutationFn: () =>
      body(queue.closed ? api.POST("/api/queues/{queue}/reopen", path) : api.POST("/api/queues/{queue}/close", path)),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["queues"] }),
    onError: (error) => notifications.show({ color: "red", message: error.message }),
  });
  const pause = useEdit(queue.name, (change: "paused" | "resumed") =>
    body(api.PUT("/api/queues/{queue}/state", { ...path, body: { change } })),
  );
  return (
    <>
      {deciding && <DecideDialog queue={queue.name} title={queue.title} close={() => setDeciding(false)} />}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" aria-label={t("More for {{title}}", { title: queue.title })}>
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          {queuePages().map(([page, label]) => (
            <Menu.Item key={page} component={Link} to={`${at}/${page}`}>
              {label}
            </Menu.Item>
          ))}
          {queue.question !== "spans" && (
            <Menu.Item component={Link} to={`${at}/adjudicate`}>
              {t("Adjudicate")}
            </Menu.Item>
          )}
          {!SINGLE_RESPONSES.has(queue.question) && (
            <Menu.Item onClick={() => setDeciding(true)}>{t("Decide by the votes")}</Menu.Item>
          )}
          <Menu.Item onClick={() => pause.mutate(queue.paused ? "resumed" : "paused")}>{queue.paused ? t("Resume") : t("Pause")}</Menu.Item>
          <Menu.Item onClick={() => turn.mutate()}>{queue.closed ? t("Reopen") : t("Close")}</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}
