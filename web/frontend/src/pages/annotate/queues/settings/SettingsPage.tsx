import { Button, Group, Modal, NumberInput, Stack, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useState, type FormEvent } from "react";
import { useNavigate, useParams } from "react-router";

import { api, body } from "../../../../api/client";
import { Failure, Waiting } from "../../../../components/States";
import { momentInWords } from "../../../../format/moment";
import { t } from "../../../../i18n";
import { QueueArea } from "../QueueArea";
import { Admissions } from "./Admissions";
import { Assignment } from "./Assignment";
import { GuidelineEditor } from "./GuidelineEditor";
import { Suggestions } from "./Suggestions";
import { useEdit, useSettings, type Settings } from "./useSettings";

/** All that may be edited of a queue, each part stored by itself. */
export function SettingsPage() {
  const { queue = "" } = useParams();
  const { data, failureReason: error } = useSettings(queue);
  return (
    <QueueArea>
      {data === undefined ? (
        error ? <Failure error={error} /> : <Waiting />
      ) : (
        <Stack gap="sm" key={queue}>
          <About queue={queue} settings={data} />
          <GuidelineEditor queue={queue} current={data.guideline} />
          <Assignment queue={queue} settings={data} />
          <Suggestions queue={queue} settings={data} />
          <Admissions queue={queue} settings={data} />
          <Turns queue={queue} settings={data} />
          <Changes settings={data} />
        </Stack>
      )}
    </QueueArea>
  );
}

function About({ queue, settings: { queue: record, options } }: { queue: string; settings: Settings }) {
  const [fields, setFields] = useState({ title: record.title, description: options.description, priority: options.priority });
  const store = useEdit(
    queue,
    () => body(api.PATCH("/api/queues/{queue}", { params: { path: { queue } }, body: fields })),
    t("Stored"),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    store.mutate(undefined);
  };
  const same = fields.title === record.title && fields.description === options.description && fields.priority === options.priority;
  return (
    <section className="panel" aria-label={t("Name and order")}>
      <form onSubmit={submit}>
        <Stack gap="xs">
          <Group grow align="start">
            <TextInput
              label={t("Name")}
              description={t("What people see. Addresses and records keep the name {{name}}.", { name: record.name })}
              required
              maxLength={100}
              value={fields.title}
              onChange={(event) => setFields({ ...fields, title: event.currentTarget.value })}
            />
            <NumberInput
              label={t("Priority")}
              description={t("Queues of a higher one stand first in everybody's list.")}
              min={-1000}
              max={1000}
              allowDecimal={false}
              value={fields.priority}
              onChange={(value) => setFields({ ...fields, priority: Number(value) || 0 })}
            />
          </Group>
          <Textarea
            label={t("Description")}
            description={t("Shown in the list of queues.")}
            autosize
            minRows={1}
            maxLength={2000}
            value={fields.description}
            onChange={(event) => setFields({ ...fields, description: event.currentTarget.value })}
          />
          <Group>
            <Button type="submit" loading={store.isPending} disabled={same}>
              {t("Store name and order")}
            </Button>
          </Group>
        </Stack>
      </form>
    </section>
  );
}

/** Pausing, and deletion, which asks first and can be undone. */
function Turns({ queue, settings: { queue: record } }: { queue: string; settings: Settings }) {
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const turn = useEdit(queue, (change: "paused" | "resumed" | "deleted") =>
    body(api.PUT("/api/queues/{queue}/state", { params: { path: { queue } }, body: { change } })),
  );
  return (
    <section className="panel" aria-label={t("Pause and deletion")}>
      <Title order={2} mb={4}>
        {t("Pause and deletion")}
      </Title>
      <Group gap="xs">
        <Button variant="default" loading={turn.isPending} onClick={() => turn.mutate(record.paused ? "resumed" : "paused")}>
          {record.paused ? t("Resume the queue") : t("Pause the queue")}
        </Button>
        <Button variant="light" color="red" onClick={() => setAsking(true)}>
          {t("Delete the queue")}
        </Button>
      </Group>
      <Text size="sm" className="dim" mt={4}>
        {t("A paused queue hands out nothing new. What people have before them they may finish; drafts stay. Agreement stays hidden, which closing shows.")}
      </Text>
      <Modal opened={asking} onClose={() => setAsking(false)} title={t("Delete {{title}}?", { title: record.title })}>
        <Stack gap="sm">
          <Text size="sm">
            {t("Nobody sees it any more and it hands out nothing. Its votes and decisions stay in the store and in exports, and its name stays theirs: no other queue can take it. It can be restored from the list of queues.")}
          </Text>
          <Group justify="flex-end" gap="xs">
            <Button variant="default" onClick={() => setAsking(false)} data-autofocus>
              {t("Keep it")}
            </Button>
            <Button color="red" loading={turn.isPending} onClick={() => turn.mutate("deleted", { onSuccess: () => void navigate("/annotate") })}>
              {t("Delete it")}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </section>
  );
}

function Changes({ settings: { history } }: { settings: Settings }) {
  if (history.length === 0) return null;
  return (
    <section className="panel" aria-label={t("What was changed")}>
      <Title order={2} mb={4}>
        {t("What was changed")}
      </Title>
      <Stack gap={2} component="ul" p={0} m={0} style={{ listStyle: "none" }}>
        {history.slice(0, 50).map((event) => (
          <Text key={`${event.change}${event.at}`} component="li" size="sm">
            <span className="dim">{momentInWords(event.at)}</span> {event.person ?? t("rule of the queue")}: {inWords(event)}
          </Text>
        ))}
      </Stack>
    </section>
  );
}

function inWords({ change, detail }: Settings["history"][number]): string {
  const list = (value: unknown) => (Array.isArray(value) ? value.join(", ") : "");
  switch (change) {
    case "guideline":
      return t("guideline, version {{version}}", { version: String(detail.version) });
    case "renamed":
      return t("named {{title}}", { title: String(detail.title) });
    case "paused":
      return t("paused");
    case "resumed":
      return t("resumed");
    case "deleted":
      return t("deleted");
    case "restored":
      return t("restored");
    case "asked":
      return detail.people === null ? t("assigned to everybody") : t("assigned to {{who}}", { who: [list(detail.people), list(detail.groups)].filter(Boolean).join(", ") || t("nobody") });
    case "admission":
      return `${String(detail.annotator)}: ${String(detail.reason)}`;
    default:
      return Object.entries(detail)
        .map(([name, value]) => `${optionName(name)}: ${Array.isArray(value) ? list(value) || t("all") : String(value)}`)
        .join("; ");
  }
}

function optionName(name: string): string {
  const names: Record<string, string> = {
    description: t("Description"),
    priority: t("Priority"),
    suggestions: t("Suggestions"),
    suggested_by: t("Suggestions by"),
    qualify_checks: t("Items of the qualification"),
    qualify_share: t("Share of them right"),
    gate_checks: t("Checks before the rule holds"),
    gate_share: t("Share right later"),
  };
  return names[name] ?? name;
}
