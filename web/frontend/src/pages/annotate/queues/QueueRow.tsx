import { ActionIcon, Badge, Box, Button, Group, Menu, Progress, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconDots } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { count, counted } from "../../../format/count";
import { Guideline } from "../Guideline";
import { shareInWords } from "../words";
import { DecideDialog } from "./DecideDialog";

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
            <Text fw={600}>{queue.name}</Text>
            {queue.project !== "default" && (
              <Badge size="sm" variant="light" tt="none">
                {queue.project}
              </Badge>
            )}
            {queue.question !== "pair" && (
              <Badge size="sm" variant="light" color="blue" tt="none">
                {queue.question}
              </Badge>
            )}
            {queue.closed && (
              <Badge size="sm" variant="light" color="gray">
                closed
              </Badge>
            )}
            <Text size="sm" className="dim">
              {queue.overlap === "all" ? "everyone votes on everything" : `${counted(queue.overlap, "person", "people")} each`}
            </Text>
          </Group>
          {queue.guideline !== "" && (
            <Text component="div" size="sm" className="dim" lineClamp={2}>
              <Guideline text={queue.guideline} />
            </Text>
          )}
        </Box>
        <Box w={200}>
          <Progress value={100 * queue.share} aria-label={`${queue.name}: done`} mb={2} />
          <Text size="sm" className="dim">
            {queue.counts === null
              ? shareInWords(queue.share)
              : `${count(queue.counts.done)} of ${count(queue.counts.items)} done, ${counted(queue.counts.votes, "vote")}`}
          </Text>
        </Box>
        <Text size="sm" className="dim" w={150}>
          {count(queue.mine)} by you, {count(queue.voting)} voting now
        </Text>
        <Group gap={6} wrap="nowrap">
          {curator && conflicts > 0 && (
            <Button component={Link} to={`${at}/adjudicate`} variant="light" color="violet">
              Adjudicate {count(conflicts)}
            </Button>
          )}
          {annotator && (
            <Button component={Link} to={at} variant={queue.closed ? "light" : "filled"} aria-label={`Annotate ${queue.name}`}>
              Annotate
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
  return (
    <>
      {deciding && <DecideDialog queue={queue.name} close={() => setDeciding(false)} />}
      <Menu position="bottom-end">
        <Menu.Target>
          <ActionIcon variant="subtle" color="gray" aria-label={`More for ${queue.name}`}>
            <IconDots size={16} />
          </ActionIcon>
        </Menu.Target>
        <Menu.Dropdown>
          <Menu.Item component={Link} to={`${at}/report`}>
            Annotators and agreement
          </Menu.Item>
          {queue.question !== "spans" && (
            <Menu.Item component={Link} to={`${at}/adjudicate`}>
              Adjudicate
            </Menu.Item>
          )}
          {!SINGLE_RESPONSES.has(queue.question) && (
            <Menu.Item onClick={() => setDeciding(true)}>Decide by the votes</Menu.Item>
          )}
          <Menu.Item onClick={() => turn.mutate()}>{queue.closed ? "Reopen" : "Close"}</Menu.Item>
        </Menu.Dropdown>
      </Menu>
    </>
  );
}
