import { Anchor, Autocomplete, Button, Group, Modal, NumberInput, Stack, Text, Textarea } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure } from "../../../components/States";
import { counted } from "../../../format/count";
import { AGAIN } from "../again";

type Rater = Schemas["RaterEntry"];

/** Asks people about the selected pairs: into a queue that there is, or a new one. */
export function SendDialog({
  opened,
  onClose,
  first,
  second,
  picked,
  onSent,
}: {
  opened: boolean;
  onClose: () => void;
  first: Rater;
  second: Rater;
  picked: string[];
  onSent: () => void;
}) {
  const queries = useQueryClient();
  const [queue, setQueue] = useState("");
  const [overlap, setOverlap] = useState<number | string>(3);
  const [note, setNote] = useState("");
  const queues = useQuery({ queryKey: ["rewards", "queues"], queryFn: () => body(api.GET("/api/rewards/queues")), enabled: opened });
  const existing = queues.data?.queues.find(({ name }) => name === queue.trim());
  const send = useMutation({
    ...AGAIN,
    mutationFn: () =>
      body(
        api.POST("/api/rewards/disagreements/queue", {
          body: {
            first: first.reference,
            second: second.reference,
            comparison_ids: picked,
            queue: queue.trim(),
            overlap: Number(overlap) || 1,
            note,
          },
        }),
      ),
    onSuccess: () => {
      onSent();
      void queries.invalidateQueries({ queryKey: ["rewards", "queues"] });
    },
  });
  const close = () => {
    send.reset();
    onClose();
  };
  return (
    <Modal opened={opened} onClose={close} title="Send to an annotation queue" closeButtonProps={{ "aria-label": "Close" }}>
      {send.data !== undefined ? (
        <Stack gap="sm">
          <Text size="sm" role="status">
            {counted(send.data.added, "pair")} added to {send.data.queue}
            {send.data.made ? ", which is new" : ""}; it has {counted(send.data.items, "pair")} now.
          </Text>
          <Group justify="space-between">
            <Anchor component={Link} to={`/annotate/queue/${encodeURIComponent(send.data.queue)}`} size="sm">
              Annotate
            </Anchor>
            <Button onClick={close}>Close</Button>
          </Group>
        </Stack>
      ) : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            send.mutate();
          }}
        >
          <Stack gap="sm">
            <Text size="sm">
              {counted(picked.length, "pair")}. People see that {first.name} and {second.name} disagree, not who prefers what;
              that is shown after they voted.
            </Text>
            <Autocomplete
              label="Queue"
              description="One that takes items, or a new name."
              required
              data={queues.data?.queues.map(({ name }) => name) ?? []}
              value={queue}
              onChange={setQueue}
              size="xs"
              data-autofocus
            />
            {existing === undefined ? (
              <NumberInput label="People per pair" min={1} max={50} value={overlap} onChange={setOverlap} />
            ) : (
              <Text size="xs" className="dim">
                {existing.name} has {counted(existing.items, "pair")}, {existing.overlap === "all" ? "everyone" : existing.overlap} per pair.
              </Text>
            )}
            <Textarea
              label="Note"
              description="Shown beside each pair, after the names of the two."
              value={note}
              maxLength={500}
              autosize
              minRows={2}
              onChange={(event) => setNote(event.currentTarget.value)}
            />
            {send.failureReason !== null && <Failure error={send.failureReason} />}
            <Group justify="end">
              <Button type="submit" loading={send.isPending} disabled={queue.trim() === "" || picked.length === 0}>
                Send
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
