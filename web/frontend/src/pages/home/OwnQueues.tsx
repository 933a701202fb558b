import { Badge, Button, Group, Progress, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { useAllows, useSession } from "../../api/session";
import { Empty, Failure, Waiting } from "../../components/States";
import { percent } from "../../format/percent";
import { t } from "../../i18n";

/** The queues that somebody is asked in, how far they are, and going on. */
export function OwnQueues() {
  const { name } = useSession();
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => body(api.GET("/api/queues")) });
  const open = queues.data?.filter(({ closed }) => !closed) ?? [];
  const closed = queues.data?.filter((queue) => queue.closed && queue.mine > 0) ?? [];
  return (
    <Stack gap="md" maw={820}>
      <Title order={1}>{t("Hello {{name}}", { name })}</Title>
      {queues.data === undefined ? (
        queues.failureReason !== null ? (
          <Failure error={queues.failureReason} />
        ) : (
          <Waiting />
        )
      ) : (
        <>
          {open.length === 0 && <Empty title={t("There is nothing to annotate now")}>{t("A queue that you are asked in appears here by itself.")}</Empty>}
          {open.map((queue) => (
            <QueueCard key={queue.name} queue={queue} />
          ))}
          {closed.length > 0 && (
            <Text size="sm" className="dim">
              {t("Closed: {{queues}}", { queues: closed.map((queue) => queue.title).join(", ") })}
            </Text>
          )}
        </>
      )}
    </Stack>
  );
}

export function QueueCard({ queue: { name, title, share, mine, paused, assigned } }: { queue: Schemas["QueueReply"] }) {
  const votes = useAllows("vote");
  const done = Math.round(100 * share);
  return (
    <div className="panel">
      <Group justify="space-between" wrap="nowrap" gap="md">
        <div className="home-grows">
          <Group gap="xs" wrap="nowrap">
            <Text fw={600} truncate>
              {title}
            </Text>
            {paused && (
              <Badge size="sm" variant="light" color="yellow">
                {t("paused")}
              </Badge>
            )}
            {!assigned && (
              <Badge size="sm" variant="light" color="gray" tt="none">
                {t("for others")}
              </Badge>
            )}
          </Group>
          <Text size="sm" className="dim">
            {votes && `${mine === 0 ? t("you have not voted yet") : t("{{count}} votes of yours", { count: mine })} · `}
            {t("{{share}} done", { share: percent(share, 0) })}
          </Text>
          <Progress value={done} size="sm" mt={6} aria-label={t("{{name}}: {{share}} done", { name: title, share: percent(share, 0) })} />
        </div>
        {votes && assigned && (
          <Button
            flex="none"
            component={Link}
            to={`/annotate/queue/${encodeURIComponent(name)}`}
            variant={paused ? "default" : "filled"}
            aria-label={mine === 0 ? t("Begin {{name}}", { name: title }) : t("Go on with {{name}}", { name: title })}
          >
            {mine === 0 ? t("Begin") : t("Go on")}
          </Button>
        )}
      </Group>
    </div>
  );
}
