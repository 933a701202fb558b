import { Button, Group, Modal, MultiSelect, NumberInput, Select, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, body, type Schemas } from "../../api/client";
import { Failure } from "../../components/States";
import { t } from "../../i18n";
import { useForm } from "./useJobs";
type NewLoop = Schemas["NewLoop"];

const FIRST: NewLoop = {
  name: "",
  iterations: 4,
  seed: 200,
  people_seed: 100,
  people_per_iteration: 50,
  overlap: 1,
  judges: null,
  max_cost: null,
  sources: [],
  base: "smollm2",
  encoder: "minilm",
};

/** A loop in a few fields; its file can be edited before it begins. */
export function NewLoopDialog({ onClose, onMade }: { onClose: () => void; onMade: (file: string) => void }) {
  const [loop, setLoop] = useState(FIRST);
  const queries = useQueryClient();
  const offered = useForm("judge", null).data?.fields;
  const names = (setting: string) => offered?.find(({ name }) => name === setting)?.suggestions ?? [];
  const make = useMutation({
    mutationFn: () => body(api.POST("/api/curate/loops", { body: loop })),
    onSuccess: async ({ file }) => {
      await queries.invalidateQueries({ queryKey: ["jobs", "form"] });
      onMade(file);
    },
  });
  const change = (changes: Partial<NewLoop>) => setLoop((before) => ({ ...before, ...changes }));
  const number = (name: "iterations" | "seed" | "people_seed" | "people_per_iteration" | "overlap", label: string, least: number) => (
    <NumberInput label={label} min={least} allowDecimal={false} value={loop[name]} onChange={(value) => change({ [name]: Math.max(least, Number(value) || 0) })} />
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    event.stopPropagation(); // the form of the stage is around it
    make.mutate();
  };
  return (
    <Modal opened onClose={onClose} title={t("A new loop")} size="lg" closeButtonProps={{ "aria-label": t("Close") }}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <TextInput
            label={t("Name")}
            description={t("Models, queues and snapshots of the loop carry it")}
            required
            value={loop.name}
            onChange={(event) => change({ name: event.currentTarget.value.trim() })}
            data-autofocus
          />
          <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
            {number("iterations", t("Iterations"), 1)}
            {number("seed", t("For judges to begin with"), 0)}
            {number("people_seed", t("For people to begin with"), 0)}
            {number("people_per_iteration", t("For people in each iteration"), 0)}
            {number("overlap", t("People for each comparison"), 1)}
            <NumberInput
              label={t("Budget (empty: none)")}
              min={0}
              value={loop.max_cost ?? ""}
              onChange={(value) => change({ max_cost: value === "" ? null : Number(value) })}
            />
            <Select
              label={t("Judges")}
              placeholder={t("source and reward model vote")}
              data={names("judges")}
              value={loop.judges}
              onChange={(judges) => change({ judges })}
              clearable
              clearButtonProps={{ "aria-label": t("No judges") }}
            />
            <TextInput label={t("Base of the reward model")} value={loop.base} onChange={(event) => change({ base: event.currentTarget.value.trim() })} />
            <TextInput label={t("Encoder")} value={loop.encoder} onChange={(event) => change({ encoder: event.currentTarget.value.trim() })} />
            <MultiSelect
              label={t("Sources (none: all of them)")}
              data={names("source")}
              value={loop.sources ?? []}
              onChange={(sources) => change({ sources })}
            />
          </SimpleGrid>
          <Text size="xs" className="dim">
            {t("Written into the workspace's folder loops. Files of judges lie there too; the file takes every other setting.")}
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
