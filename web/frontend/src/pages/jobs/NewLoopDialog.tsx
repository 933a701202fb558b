import { MultiSelect, NumberInput, Select, TextInput } from "@mantine/core";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { t } from "../../i18n";
import { LoopDialog } from "./LoopDialog";
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
  const offered = useForm("judge", null).data?.fields;
  const names = (setting: string) => offered?.find(({ name }) => name === setting)?.suggestions ?? [];
  const change = (changes: Partial<NewLoop>) => setLoop((before) => ({ ...before, ...changes }));
  const number = (name: "iterations" | "seed" | "people_seed" | "people_per_iteration" | "overlap", label: string, least: number) => (
    <NumberInput label={label} min={least} allowDecimal={false} value={loop[name]} onChange={(value) => change({ [name]: Math.max(least, Number(value) || 0) })} />
  );
  return (
    <LoopDialog
      title={t("A new loop")}
      name={loop.name}
      nameHelp={t("Models, queues and snapshots of the loop carry it")}
      rest={t("Written into the workspace's folder loops. Files of judges lie there too; the file takes every other setting.")}
      onName={(name) => change({ name })}
      write={() => body(api.POST("/api/curate/loops", { body: loop }))}
      onClose={onClose}
      onMade={onMade}
    >
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
    </LoopDialog>
  );
}
