import { Button, Code, Group, Stack, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { Empty, Failure, Waiting } from "../../../components/States";
import { QueueRow } from "./QueueRow";

/** All queues with how far they are. */
export function QueueList() {
  const curator = useAllows("curate");
  const { data, failureReason: error } = useQuery({
    queryKey: ["queues"],
    queryFn: () => body(api.GET("/api/queues")),
    refetchInterval: 5000,
  });
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>Annotate</Title>
        {curator && (
          <Button component={Link} to="/annotate/new" variant="light">
            New queue
          </Button>
        )}
      </Group>
      {data === undefined ? (
        error ? (
          <Failure error={error} />
        ) : (
          <Waiting />
        )
      ) : data.length === 0 ? (
        <Empty title="There are no queues yet">
          A queue is a selection of comparisons for people to vote on. Make one here, or with{" "}
          <Code>assay queue create first-round --pool unverified --limit 200 --overlap 3</Code>
        </Empty>
      ) : (
        <Stack gap="xs" component="ul" p={0} m={0} style={{ listStyle: "none" }}>
          {data.map((queue) => (
            <QueueRow key={queue.name} queue={queue} />
          ))}
        </Stack>
      )}
    </Stack>
  );
}
