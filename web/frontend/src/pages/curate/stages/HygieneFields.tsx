import { Checkbox, Group, MultiSelect, NumberInput, Select } from "@mantine/core";

import { t } from "../../../i18n";
import { useSettings, type Change } from "./useSettings";
import type { Options } from "./useStages";

type Fields = { options: Options; onChange: Change };

/** A setting's default and range as the server declares them. `clamped`: a number from an input, within the range. */
function declared(options: Options, stage: string, name: string) {
  const setting = options.settings[stage]?.[name];
  const min = setting?.least ?? undefined;
  const max = setting?.most ?? undefined;
  const clamped = (value: string | number) => Math.min(max ?? Infinity, Math.max(min ?? -Infinity, Number(value) || Number(setting?.default)));
  return { value: setting?.default, min, max, clamped };
}

export function CleanFields({ options, onChange }: Fields) {
  const characters = declared(options, "clean", "max_characters");
  const control = declared(options, "clean", "control_characters");
  const [settings, change] = useSettings<"clean">(
    { stage: "clean", max_characters: Number(characters.value), control_characters: control.value === true },
    onChange,
  );
  return (
    <Group gap="sm" align="end">
      <NumberInput
        label={t("Longest response, characters (0: no limit)")}
        min={characters.min}
        max={characters.max}
        allowDecimal={false}
        value={settings.max_characters}
        onChange={(value) => change({ max_characters: characters.clamped(value) })}
      />
      <Checkbox
        size="xs"
        label={t("Discard texts with control characters")}
        checked={settings.control_characters}
        onChange={(event) => change({ control_characters: event.currentTarget.checked })}
      />
    </Group>
  );
}

export function NearDuplicateFields({ options, onChange }: Fields) {
  const threshold = declared(options, "near_duplicates", "threshold");
  const shingle = declared(options, "near_duplicates", "shingle");
  const over = declared(options, "near_duplicates", "over");
  const [settings, change] = useSettings<"near_duplicates">(
    {
      stage: "near_duplicates",
      threshold: Number(threshold.value),
      shingle: Number(shingle.value),
      over: over.value as "pair" | "prompt",
      seed: Number(declared(options, "near_duplicates", "seed").value),
      discard: false,
    },
    onChange,
  );
  return (
    <Group gap="sm" align="end">
      <NumberInput
        label={t("Least similarity")}
        w={120}
        min={threshold.min}
        max={threshold.max}
        step={0.05}
        value={settings.threshold}
        onChange={(value) => change({ threshold: threshold.clamped(value) })}
      />
      <NumberInput
        label={t("Words of a shingle")}
        w={140}
        min={shingle.min}
        max={shingle.max}
        allowDecimal={false}
        value={settings.shingle}
        onChange={(value) => change({ shingle: shingle.clamped(value) })}
      />
      <Select
        label={t("Of")}
        w={260}
        data={[
          { value: "pair", label: t("pairs: prompt and both responses") },
          { value: "prompt", label: t("prompts alone") },
        ]}
        value={settings.over}
        onChange={(value) => value !== null && change({ over: value as "pair" | "prompt" })}
        allowDeselect={false}
      />
      <Checkbox
        size="xs"
        label={t("Discard all but the kept of each cluster")}
        checked={settings.discard}
        onChange={(event) => change({ discard: event.currentTarget.checked })}
      />
    </Group>
  );
}

export function DecontaminateFields({ options, onChange }: Fields) {
  const ngram = declared(options, "decontaminate", "ngram");
  const unit = declared(options, "decontaminate", "unit");
  const [settings, change] = useSettings<"decontaminate">(
    {
      stage: "decontaminate",
      benchmarks: [],
      ngram: Number(ngram.value),
      unit: unit.value as "word" | "character",
      containment: Number(declared(options, "decontaminate", "containment").value),
      responses: declared(options, "decontaminate", "responses").value === true,
      encoder: "",
      similarity: Number(declared(options, "decontaminate", "similarity").value),
      discard: true,
    },
    onChange,
  );
  return (
    <Group gap="sm" align="end">
      <MultiSelect
        label={t("Benchmarks (none: all of them)")}
        w={280}
        data={options.benchmarks}
        value={settings.benchmarks ?? []}
        onChange={(benchmarks) => change({ benchmarks })}
      />
      <NumberInput
        label={t("Units in common")}
        w={130}
        min={ngram.min}
        max={ngram.max}
        allowDecimal={false}
        value={settings.ngram}
        onChange={(value) => change({ ngram: ngram.clamped(value) })}
      />
      <Select
        label={t("Units")}
        w={130}
        data={["word", "character"]}
        value={settings.unit}
        onChange={(value) => value !== null && change({ unit: value as "word" | "character" })}
        allowDeselect={false}
      />
      <Checkbox
        size="xs"
        label={t("Responses, too")}
        checked={settings.responses}
        onChange={(event) => change({ responses: event.currentTarget.checked })}
      />
      <Checkbox
        size="xs"
        label={t("Paraphrases, too (embeddings; slow)")}
        checked={settings.encoder !== ""}
        onChange={(event) => change({ encoder: event.currentTarget.checked ? "minilm" : "" })}
      />
      <Checkbox
        size="xs"
        label={t("Discard what overlaps")}
        checked={settings.discard ?? true}
        onChange={(event) => change({ discard: event.currentTarget.checked })}
      />
    </Group>
  );
}

export function VerifyFields({ options, onChange }: Fields) {
  const [settings, change] = useSettings<"verify">({ stage: "verify", share: 1, sources: [] }, onChange);
  return (
    <Group gap="sm" align="end">
      <NumberInput
        label={t("Share of the prompts")}
        w={150}
        min={0}
        max={1}
        step={0.1}
        value={settings.share}
        onChange={(value) => change({ share: Math.min(1, Math.max(0, Number(value))) })}
      />
      <MultiSelect
        label={t("Sources (none: all of them)")}
        w={320}
        data={options.sources}
        value={settings.sources ?? []}
        onChange={(sources) => change({ sources })}
      />
    </Group>
  );
}
