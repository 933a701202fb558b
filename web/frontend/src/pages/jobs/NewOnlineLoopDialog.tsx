import { NumberInput, Select, TextInput } from "@mantine/core";
import { useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { t } from "../../i18n";
import { LoopDialog } from "./LoopDialog";

type Loop = Required<Schemas["NewOnlineLoop"]>;

const FIRST: Loop = { name: "", policy: "smollm2", prompts: "constrained:128", steps: 200, source: "verifier", first_labels: 64, every: 5, count: 8, labels: 256 };

/** An online loop in a few fields; its file takes every other setting. */
export function NewOnlineLoopDialog({ onClose, onMade }: { onClose: () => void; onMade: (file: string) => void }) {
  const [loop, setLoop] = useState(FIRST);
  const change = (changes: Partial<Loop>) => setLoop((before) => ({ ...before, ...changes }));
  const number = (name: "steps" | "first_labels" | "every" | "count" | "labels", label: string) => (
    <NumberInput label={label} min={1} allowDecimal={false} value={loop[name]} onChange={(value) => change({ [name]: Math.max(1, Number(value) || 1) })} />
  );
  return (
    <LoopDialog
      title={t("A new online loop")}
      about={t("A policy is trained against a reward model that learns meanwhile, from labels bought on fresh responses.")}
      name={loop.name}
      rest={t("Written into the workspace's folder loops; the file takes every other setting.")}
      onName={(name) => change({ name })}
      write={() => body(api.POST("/api/jobs/online-loops", { body: loop }))}
      onClose={onClose}
      onMade={onMade}
    >
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
    </LoopDialog>
  );
}
