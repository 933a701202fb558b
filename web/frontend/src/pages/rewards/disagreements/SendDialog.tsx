import { Anchor, Autocomplete, Button, Group, Modal, NumberInput, Stack, Text, Textarea } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure } from "../../../components/States";
import { t } from "../../../i18n";
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
    <Modal opened={opened} onClose={close} title={t("Send to an annotation queue")} closeButtonProps={{ "aria-label": t("Close") }}>
      {send.data !== undefined ? (
        <Stack gap="sm">
          <Text size="sm" role="status">
            {t(send.data.made ? "{{added}} added to {{queue}}, which is new; it has {{pairs}} now." : "{{added}} added to {{queue}}; it has {{pairs}} now.", {
              added: t("{{count}} pairs", { count: send.data.added }),
              queue: send.data.queue,
              pairs: t("{{count}} pairs", { count: send.data.items }),
            })}
          </Text>
          <Group justify="space-between">
            <Anchor component={Link} to={`/annotate/queue/${encodeURIComponent(send.data.queue)}`} size="sm">
              {t("Annotate")}
            </Anchor>
            <Button onClick={close}>{t("Close")}</Button>
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
              {t("{{pairs}}. People see that {{first}} and {{second}} disagree, not who prefers what; that is shown after they voted.", { pairs: t("{{count}} pairs", { count: picked.length }), first: first.name, second: second.name })}
            </Text>
            <Autocomplete
              label={t("Queue")}
              description={t("One that takes items, or a new name.")}
              required
              data={queues.data?.queues.map(({ name }) => name) ?? []}
              value={queue}
              onChange={setQueue}
              size="xs"
              data-autofocus
            />
            {existing === undefined ? (
              <NumberInput label={t("People per pair")} min={1} max={50} value={overlap} onChange={setOverlap} />
            ) : (
              <Text size="xs" className="dim">
                {t("{{name}} has {{pairs}}, {{people}} per pair.", {
                  name: existing.name,
                  pairs: t("{{count}} pairs", { count: existing.items }),
                  people: existing.overlap === "all" ? t("everyone") : existing.overlap,
                })}
              </Text>
            )}
            <Textarea
              label={t("Note")}
              description={t("Shown beside each pair, after the names of the two.")}
              value={note}
              maxLength={500}
              autosize
              minRows={2}
              onChange={(event) => setNote(event.currentTarget.value)}
            />
            {send.failureReason !== null && <Failure error={send.failureReason} />}
            <Group justify="end">
              <Button type="submit" loading={send.isPending} disabled={queue.trim() === "" || picked.length === 0}>
                {t("Send")}
              </Button>
            </Group>
          </Stack>
        </form>
      )}
    </Modal>
  );
}
