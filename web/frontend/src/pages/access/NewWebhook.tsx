import { Button, Checkbox, Group, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, body, type Schemas } from "../../api/client";
import { SecretDialog } from "../../components/SecretDialog";
import { Failure } from "../../components/States";
import { t } from "../../i18n";

type EventType = Schemas["NewWebhook"]["events"][number];

/** Where to send what; the secret by which the receiver checks signatures is shown once. */
export function NewWebhook({ types }: { types: string[] }) {
  const queries = useQueryClient();
  const [url, setUrl] = useState("");
  const [events, setEvents] = useState<string[]>(types);
  const [inside, setInside] = useState(false);
  const make = useMutation({
    mutationFn: () => body(api.POST("/api/webhooks", { body: { url: url.trim(), events: events as EventType[], private: inside } })),
    onSuccess: async () => {
      setUrl("");
      await queries.invalidateQueries({ queryKey: ["webhooks"] });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    make.mutate();
  };
  return (
    <form onSubmit={submit}>
      <Stack className="panel" gap="xs">
        <TextInput label={t("Tell the program at")} placeholder="https://hooks.example.org/assay" type="url" required value={url} onChange={(event) => setUrl(event.currentTarget.value)} maw={560} />
        <Checkbox.Group label={t("When")} value={events} onChange={setEvents}>
          <Group gap="md" mt={4}>
            {types.map((type) => (
              <Checkbox key={type} value={type} label={eventInWords(type)} />
            ))}
          </Group>
        </Checkbox.Group>
        <Checkbox
          checked={inside}
          onChange={(event) => setInside(event.currentTarget.checked)}
          label={t("It may be at a private address")}
          description={t("Other services of this network are there. Leave it unset for a program on the internet.")}
        />
        <Group>
          <Button type="submit" loading={make.isPending} disabled={url.trim() === "" || events.length === 0}>
            {t("Make the webhook")}
          </Button>
        </Group>
        {make.error !== null && <Failure error={make.error} />}
        <SecretDialog secret={make.data?.secret ?? null} title={t("Its secret, shown this once")} label={t("Secret")} onClose={() => make.reset()}>
          <Text span size="sm">
            {t("By it the receiver checks that messages are from here, with any library of Standard Webhooks. Its name leads to {{addresses}} now.", {
              addresses: make.data?.addresses.join(", ") ?? "",
            })}
          </Text>
        </SecretDialog>
      </Stack>
    </form>
  );
}

/** What an event is, in words. */
export function eventInWords(type: string): string {
  const words: Record<string, string> = {
    "queue.progress": t("a queue has got further"),
    "queue.done": t("a queue is done"),
    "decisions.made": t("decisions were made"),
    "run.ended": t("a run has ended"),
    alert: t("a run's alert"),
    ping: t("a test"),
  };
  return words[type] ?? type;
}
