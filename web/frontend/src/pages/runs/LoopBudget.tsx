import { Badge, Button, Group, Modal, NumberInput, Progress, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlayerPause, IconPlayerPlay, IconPlayerStop } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { useAllows } from "../../api/session";
import { formatNumber } from "../../components/chartData";
import { Failure } from "../../components/States";
import { fixed } from "../../format/figure";
import { t, textKey } from "../../i18n";

type Loop = Schemas["OnlineLoopReply"];
type Limit = Schemas["LoopLimitReply"];
type Name = Limit["name"];
type Order = Schemas["LoopOrder"];

const PHASES: Record<Loop["phase"], { text: string; colour: string }> = {
  running: { text: textKey("running"), colour: "teal" },
  pausing: { text: textKey("pausing after this step"), colour: "yellow" },
  paused: { text: textKey("paused"), colour: "yellow" },
  stopping: { text: textKey("ending after this step"), colour: "yellow" },
  ended: { text: textKey("ended"), colour: "gray" },
};
const NAMES: Record<Name, string> = { labels: textKey("Labels, those waited for included"), money: textKey("Cost of labels, those waited for included"), steps: textKey("Steps"), minutes: textKey("Minutes of training") };
const LIMITS: Record<Name, string> = {
  labels: textKey("Limit of labels"),
  money: textKey("Limit of cost"),
  steps: textKey("Limit of steps"),
  minutes: textKey("Limit of minutes"),
};

/** What of the budget is spent; for those who may, orders to the loop. */
export function LoopBudget({ id, loop }: { id: string; loop: Loop }) {
  const allowed = useAllows("curate") && loop.phase !== "ended";
  const { text, colour } = PHASES[loop.phase];
  return (
    <section className="panel" aria-label={t("Budget")}>
      <Group justify="space-between" gap="xs" mb={4}>
        <Title order={2}>{t("Budget")}</Title>
        <Badge color={colour} variant="light" tt="none" role="status">
          {t(text)}
        </Badge>
      </Group>
      <Text size="sm" mb="xs">
        {t(
          loop.every === 1
            ? "{{pairs}} every step, picked by {{selector}}, labelled by {{source}}. "
            : "{{pairs}} every {{every}} steps, picked by {{selector}}, labelled by {{source}}. ",
          { pairs: t("{{count}} pairs", { count: loop.count }), every: loop.every, selector: loop.selector, source: loop.source },
        )}
        {t("{{labels}}, {{waiting}} waited for", { labels: t("{{count}} labels", { count: loop.answered }), waiting: loop.waiting })}
        {loop.contradictions > 0 && t(", {{contradictions}} contradicted by another answer", { contradictions: loop.contradictions })}.
      </Text>
      <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="xs" verticalSpacing="xs">
        {loop.limits.map((limit) => (
          <Spent key={limit.name} limit={limit} />
        ))}
      </SimpleGrid>
      <Text size="xs" className="dim" mt="xs">
        {loop.when_spent === "stop" ? t("When a limit is reached, the run ends.") : t("When a limit is reached, no more labels are bought and training goes on with the reward as it is.")}
      </Text>
      {allowed && <Orders id={id} loop={loop} />}
    </section>
  );
}

const limitOf = (limit: Limit) => limit.ordered ?? limit.configured;

function Spent({ limit }: { limit: Limit }) {
  const most = limitOf(limit);
  return (
    <div>
      <Text size="xs" className="dim">
        {t(NAMES[limit.name])}
      </Text>
      <Text size="sm">
        <b>{limit.name === "minutes" ? fixed(limit.spent, 1) : formatNumber(limit.spent)}</b> {most === null ? t("without a limit") : t("of {{most}}", { most: formatNumber(most) })}
        {limit.ordered !== null && (
          <Text span size="xs" className="dim">
            {t(" (configured: {{limit}})", { limit: limit.configured === null ? t("no limit") : formatNumber(limit.configured) })}
          </Text>
        )}
      </Text>
      {most !== null && <Progress size="xs" value={most === 0 ? 100 : Math.min(100, (100 * limit.spent) / most)} aria-label={t("{{names}}, share of the limit", { names: t(NAMES[limit.name]) })} />}
    </div>
  );
}

function Orders({ id, loop }: { id: string; loop: Loop }) {
  const queries = useQueryClient();
  const [asking, { open, close }] = useDisclosure();
  const [draft, setDraft] = useState<Partial<Record<Name, number | string>>>({});
  const order = useMutation({
    mutationFn: (sent: Order) => body(api.POST("/api/runs/{run_id}/loop/order", { params: { path: { run_id: id } }, body: sent })),
    onSuccess: (_, sent) => {
      close();
      if (sent.limits != null) setDraft({});
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["run", id, "loop"] }),
  });
  const held = loop.phase === "paused" || loop.phase === "pausing";
  const value = (limit: Limit) => draft[limit.name] ?? limit.ordered ?? "";
  const limits = () => Object.fromEntries(loop.limits.map((limit) => [limit.name, value(limit) === "" ? null : Number(value(limit))])) as NonNullable<Order["limits"]>;
  return (
    <Stack gap="xs" mt="sm">
      <Group gap="xs">
        {held ? (
          <Button leftSection={<IconPlayerPlay size={14} />} loading={order.isPending} onClick={() => order.mutate({ state: "run" })}>
            {t("Go on")}
          </Button>
        ) : (
          <Button variant="default" leftSection={<IconPlayerPause size={14} />} loading={order.isPending} onClick={() => order.mutate({ state: "pause" })} disabled={loop.phase === "stopping"}>
            {t("Pause")}
          </Button>
        )}
        <Button color="red" variant="light" leftSection={<IconPlayerStop size={14} />} onClick={open} disabled={loop.phase === "stopping"}>
          {t("Finish now")}
        </Button>
      </Group>
      <form
        aria-label={t("Limits")}
        onSubmit={(event) => {
          event.preventDefault();
          order.mutate({ limits: limits() });
        }}
      >
        <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="xs">
          {loop.limits.map((limit) => (
            <NumberInput
              key={limit.name}
              label={t(LIMITS[limit.name])}
              placeholder={limit.configured === null ? t("no limit") : formatNumber(limit.configured)}
              min={0}
              allowDecimal={limit.name === "money" || limit.name === "minutes"}
              value={value(limit)}
              onChange={(changed) => setDraft((before) => ({ ...before, [limit.name]: changed }))}
            />
          ))}
        </SimpleGrid>
        <Group gap="xs" mt="xs">
          <Button type="submit" variant="default" loading={order.isPending} disabled={Object.keys(draft).length === 0}>
            {t("Change the budget")}
          </Button>
          <Text size="xs" className="dim">{t("Empty: as configured. Counts from the next step on.")}</Text>
        </Group>
      </form>
      {order.error !== null && <Failure error={order.error} />}
      <Modal opened={asking} onClose={close} title={t("Finish the run now?")} centered closeButtonProps={{ "aria-label": t("Close") }}>
        <Stack gap="sm">
          <Text size="sm">{t("It ends after its step, as done, and its policy is saved as it is then. A run that is to go on later is ended with Stop the run.")}</Text>
          {order.error !== null && <Failure error={order.error} />}
          <Group justify="end" gap="xs">
            <Button variant="default" onClick={close} data-autofocus>{t("Let it run")}</Button>
            <Button color="red.9" c="white" loading={order.isPending} onClick={() => order.mutate({ state: "stop" })}>
              {t("Finish now")}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Stack>
  );
}
