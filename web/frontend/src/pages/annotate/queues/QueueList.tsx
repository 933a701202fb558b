import { Button, Group, Modal, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { QueueRow } from "./QueueRow";
import { useEdit } from "./settings/useSettings";

/** All queues with how far they are. */
export function QueueList() {
  const curator = useAllows("curate");
  const [deleted, setDeleted] = useState(false);
  const { data, failureReason: error } = useQuery({
    queryKey: ["queues"],
    queryFn: () => body(api.GET("/api/queues")),
    refetchInterval: 5000,
  });
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>{t("Annotate")}</Title>
        {curator && (
          <Group gap="xs">
            <Button component={Link} to="/annotate/pay" variant="subtle">
              {t("Working time")}
            </Button>
            <Button variant="subtle" color="gray" onClick={() => setDeleted(true)}>
              {t("Deleted queues")}
            </Button>
            <Button component={Link} to="/annotate/new" variant="light">
              {t("New queue")}
            </Button>
          </Group>
        )}
      </Group>
      {data === undefined ? (
        error ? (
          <Failure error={error} />
        ) : (
          <Waiting />
        )
      ) : data.length === 0 ? (
        <Empty title={curator ? t("There are no queues yet") : t("There is no queue for you yet")}>
          {curator ? (
            <>
              {t("A queue is a selection of comparisons, or of their responses, for people to vote on.")}
              <Group justify="center" mt="sm">
                <Button component={Link} to="/annotate/new">
                  {t("Make the first queue")}
                </Button>
              </Group>
            </>
          ) : (
            t("Who runs the project makes them; they appear here by themselves.")
          )}
        </Empty>
      ) : (
        <Stack gap="xs" component="ul" p={0} m={0} style={{ listStyle: "none" }}>
          {data.map((queue) => (
            <QueueRow key={queue.name} queue={queue} />
          ))}
        </Stack>
      )}
      {deleted && <DeletedQueues close={() => setDeleted(false)} />}
    </Stack>
  );
}

function DeletedQueues({ close }: { close: () => void }) {
  const { data, failureReason: error } = useQuery({
    queryKey: ["queues", "deleted"],
    queryFn: () => body(api.GET("/api/queues-deleted")),
    staleTime: 0,
  });
  return (
    <Modal opened onClose={close} title={t("Deleted queues")}>
      {data === undefined ? (
        error ? <Failure error={error} /> : <Waiting />
      ) : data.length === 0 ? (
        <Text size="sm" className="dim">
          {t("No queue has been deleted.")}
        </Text>
      ) : (
        <Stack gap="xs">
          {data.map(({ name, title, counts }) => (
            <Deleted key={name} name={name} title={title} votes={counts?.votes ?? 0} />
          ))}
        </Stack>
      )}
    </Modal>
  );
}

function Deleted({ name, title, votes }: { name: string; title: string; votes: number }) {
  const restore = useEdit(
    name,
    () => body(api.PUT("/api/queues/{queue}/state", { params: { path: { queue: name } }, body: { change: "restored" } })),
    t("{{title}} is back", { title }),
  );
  return (
    <Group justify="space-between" wrap="nowrap">
      <Text size="sm" style={{ overflowWrap: "anywhere" }}>
        {title}, {t("{{count}} votes", { count: votes })}
      </Text>
      <Button variant="light" size="compact-sm" loading={restore.isPending} onClick={() => restore.mutate(undefined)} aria-label={t("Restore {{title}}", { title })}>
        {t("Restore")}
      </Button>
    </Group>
  );
}
