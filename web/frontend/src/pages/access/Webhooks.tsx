import { Anchor, Badge, Button, Group, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../api/client";
import { AskFirst } from "../../components/AskFirst";
import { Empty, Failure, Waiting } from "../../components/States";
import { moment } from "../../format/moment";
import { t } from "../../i18n";
import { Deliveries } from "./Deliveries";
import { eventInWords, NewWebhook } from "./NewWebhook";

/** Programs that are told what happens here: making, trying and deleting them, and what became of each message. */
export function Webhooks() {
  const { data, failureReason: error } = useQuery({ queryKey: ["webhooks"], queryFn: () => body(api.GET("/api/webhooks")) });
  if (data === undefined) return error === null ? <Waiting what={t("Webhooks are loading")} /> : <Failure error={error} />;
  return (
    <Stack gap="sm">
      <NewWebhook types={data.types} />
      {data.webhooks.length === 0 && (
        <Empty title={t("No program is told anything")}>{t("A webhook sends a signed message to another program when something happens here, and again until it is taken.")}</Empty>
      )}
      {data.webhooks.map((webhook) => (
        <WebhookCard key={webhook.id} webhook={webhook} />
      ))}
    </Stack>
  );
}

function WebhookCard({ webhook }: { webhook: Schemas["Webhook"] }) {
  const queries = useQueryClient();
  const [opened, { toggle, open: show }] = useDisclosure();
  const [asking, { open: ask, close }] = useDisclosure();
  const path = { params: { path: { webhook_id: webhook.id } } };
  const again = () => queries.invalidateQueries({ queryKey: ["webhooks"] });
  const ping = useMutation({ mutationFn: () => api.POST("/api/webhooks/{webhook_id}/test", path), onSuccess: show, onSettled: again });
  const remove = useMutation({ mutationFn: () => api.DELETE("/api/webhooks/{webhook_id}", path), onSuccess: close, onSettled: again });
  return (
    <Stack className="panel" gap={6} component="section" aria-label={t("Webhook {{url}}", { url: webhook.url })}>
      <Group gap="xs">
        <Text fw={600} style={{ overflowWrap: "anywhere" }}>
          {webhook.url}
        </Text>
        {webhook.private && (
          <Badge color="yellow" variant="light">
            {t("may be at a private address")}
          </Badge>
        )}
        {webhook.ended !== null && <Badge color="red">{t("ended")}</Badge>}
      </Group>
      <Text size="sm">{webhook.events.map(eventInWords).join(", ")}</Text>
      {webhook.ended !== null && (
        <Text size="sm" c="var(--mantine-color-error)">
          {t("Nothing is sent to it any more: {{why}}. A test puts it in use again.", { why: webhook.ended })}
        </Text>
      )}
      <Text size="xs" className="dim">
        {t("Made {{at}} by {{by}}", { at: moment(webhook.created_at), by: webhook.created_by })}
      </Text>
      <Group gap="xs">
        <Button size="compact-sm" variant="light" loading={ping.isPending} onClick={() => ping.mutate()}>
          {t("Send a test")}
        </Button>
        <Button size="compact-sm" color="red" variant="light" onClick={ask}>
          {t("Delete")}
        </Button>
        <Anchor component="button" size="sm" onClick={toggle} aria-expanded={opened}>
          {opened ? t("Hide what was sent") : t("Show what was sent")}
        </Anchor>
      </Group>
      {ping.error !== null && <Failure error={ping.error} />}
      {opened && <Deliveries webhook={webhook.id} />}
      <AskFirst
        opened={asking}
        onClose={close}
        title={t("Delete this webhook?")}
        act={t("Delete")}
        keep={t("Keep it")}
        pending={remove.isPending}
        error={remove.error}
        onAct={() => remove.mutate()}
      >
        {t("{{url}} is told nothing more, what waits for it is dropped, and the list of what was sent goes with it.", { url: webhook.url })}
      </AskFirst>
    </Stack>
  );
}
