import { Anchor, Button, Group, Select, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { t, textKey } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { ConsistencyFields } from "./ConsistencyFields";
import { CleanFields, DecontaminateFields, NearDuplicateFields, VerifyFields } from "./HygieneFields";
import { JudgeFields } from "./JudgeFields";
import { LoopFields } from "./LoopFields";
import { Stage2Fields } from "./Stage2Fields";
import { TITLES, type Options, type Settings } from "./useStages";

// Training sets are made in Data, where what they hold is shown.
const KINDS = (Object.keys(TITLES) as Settings["stage"][]).filter((kind) => kind !== "snapshot");

const DONE: Record<Settings["stage"], string> = {
  clean: textKey("Discards what breaks structural rules: empty or overlong texts, control characters."),
  dedup: textKey("Keeps one of each pair that differs only in case or white space; sets contradicting labels aside."),
  near_duplicates: textKey("Clusters what shares most of its word shingles."),
  decontaminate: textKey("Checks every prompt against the registered benchmarks by shared n-grams, with the text in common as evidence."),
  verify: textKey("Decides, as gold, pairs whose prompt carries constraints that can be checked."),
  consistency: textKey("Keeps the sources' labels that every reward model agrees with, as silver; flips or discards the others. Asks nobody."),
  judge: textKey("Puts comparisons to judges and keeps their answers, for Quality, Errors and Conflicts. Decides nothing."),
  stage1: textKey("Labels a seed, then trains, looks at the errors on gold and labels around them, iteration by iteration."),
  stage2: textKey("Keeps what a gold model and either the best model or judges agree with; discards or recycles the rest."),
  snapshot: textKey("Fixes labelled comparisons under a name, for training."),
};

/** Choosing a stage and its few settings. What it would take is shown before anything starts. */
export function StageForm({ free, onReady }: { free: boolean; onReady: (settings: Settings) => void }) {
  const query = useQuery({ queryKey: ["curate", "options"], queryFn: () => body(api.GET("/api/curate/stages/options")) });
  return (
    <div className="panel">
      <Group justify="space-between" mb={6} gap="xs">
        <Title order={2}>{t("Begin a stage")}</Title>
        <Anchor component={Link} to="/data/training-sets" size="sm">{t("Make a training set")}</Anchor>
      </Group>
      <Loaded query={query}>{(options) => <Chooser options={options} free={free} onReady={onReady} />}</Loaded>
    </div>
  );
}

function Chooser({ options, free, onReady }: { options: Options; free: boolean; onReady: (settings: Settings) => void }) {
  const [kind, setKind] = useState<Settings["stage"]>("stage1");
  const [settings, setSettings] = useState<Settings | null>(null);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (ready !== null) onReady(ready);
  };
  const ready = settings?.stage === kind ? settings : kind === "dedup" ? { stage: "dedup" as const } : null;
  return (
    <form onSubmit={submit}>
      <Stack gap="xs">
        <Select
          label={t("Stage")}
          maw={320}
          data={KINDS.map((value) => ({ value, label: t(TITLES[value]) }))}
          value={kind}
          onChange={(value) => value !== null && setKind(value as Settings["stage"])}
          allowDeselect={false}
        />
        <Text size="sm" className="dim">
          {t(DONE[kind])}
        </Text>
        {kind === "clean" && <CleanFields options={options} onChange={setSettings} />}
        {kind === "near_duplicates" && <NearDuplicateFields options={options} onChange={setSettings} />}
        {kind === "decontaminate" && <DecontaminateFields options={options} onChange={setSettings} />}
        {kind === "verify" && <VerifyFields options={options} onChange={setSettings} />}
        {kind === "consistency" && <ConsistencyFields options={options} onChange={setSettings} />}
        {kind === "judge" && <JudgeFields options={options} onChange={setSettings} />}
        {kind === "stage1" && <LoopFields options={options} onChange={setSettings} />}
        {kind === "stage2" && <Stage2Fields options={options} onChange={setSettings} />}
        <Group gap="xs">
          <Button type="submit" variant="light" disabled={!free || ready === null}>
            {t("What would it take?")}
          </Button>
          {!free && (
            <Text size="xs" className="dim">{t("One stage at a time.")}</Text>
          )}
        </Group>
      </Stack>
    </form>
  );
}
