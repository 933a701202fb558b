import { Button, Group, Modal, NumberInput, Select, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, body, type Schemas } from "../../api/client";
import { Failure } from "../../components/States";
import { t } from "../../i18n";

type Loop = Required<Schemas["NewOnlineLoop"]>;

const FIRST: Loop = { name: "", policy: "smollm2", prompts: "constrained:128", steps: 200, source: "verifier", first_labels: 64, every: 5, count: 8, labels: 256 };

/** An online loop in a few fields; its file takes every other setting. */
export function NewOnlineLoopDialog({ onClose, onMade }: { onClose: () => void; onMade: (file: string) => void }) {
  const [loop, setLoop] = useState(FIRST);
  const queries = useQueryClient();
  const make = useMutation({
    mutationFn: () => body(api.POST("/api/jobs/online-loops", { body: loop })),
    onSuccess: async ({ file }) => {
      await queries.invalidateQueries({ queryKey: ["jobs", "form"] });
      onMade(file);
    },
  });
  const change = (changes: Partial<Loop>) => setLoop((before) => ({ ...before, ...changes }));
  const number = (name: "steps" | "first_labels" | "every" | "count" | "labels", label: string) => (
    <NumberInput label={label} min={1} allowDecimal={false} value={loop[name]} onChange={(value) => change({ [name]: Math.max(1, Number(value) || 1) })} />
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    event.stopPropagation(); // the form of the job is around it
    make.mutate();
  };
  return (
    <Modal opened onClose={onClose} title={t("A new online loop")} size="lg" closeButtonProps={{ "aria-label": t("Close") }}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <Text size="sm" className="dim">
            {t("A policy is trained against a reward model that learns meanwhile, from labels bought on fresh responses.")}
          </Text>
          <TextInput label={t("Name")} required value={loop.name} onChange={(event) => change({ name: event.currentTarget.value.trim() })} data-autofocus />
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
            <TextInput label={t("Policy")} value={loop.policy} onChange={(event) => change({ policy: event.currentTarget.value.trim() })} />
            <TextInput label={t("Prompts")} value={loop.prompts} onChange={(event) => change({ prompts: event.currentTarget.value.trim() })} />
            {number("steps", t("Steps"))}
            <Select
              label={t("Labels from")}
              data={[
                { value: "verifier", label: t("what can be checked in the prompt") },
                { value: "people", label: t("people, in a queue of its own") },
              ]}
              value={loop.source}
              onChange={(source) => source !== null && change({ source })}
              allowDeselect={false}
            />
            {number("first_labels", t("Labels before the first step"))}
            {number("every", t("Steps between purchases"))}
            {number("count", t("Labels of each purchase"))}
            {number("labels", t("Labels in all"))}
          </SimpleGrid>
          <Text size="xs" className="dim">
            {t("Written into the workspace's folder loops; the file takes every other setting.")}
          </Text>
          {make.error !== null && <Failure error={make.error} />}
          <Group justify="end" gap="xs">
            <Button variant="default" onClick={onClose}>
              {t("Not now")}
            </Button>
            <Button type="submit" loading={make.isPending} disabled={loop.name === ""}>
              {t("Write it down")}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
