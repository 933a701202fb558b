import { Checkbox, Group, MultiSelect, NumberInput, Select } from "@mantine/core";

import { useSettings, type Change } from "./useSettings";
import type { Options } from "./useStages";

export function CleanFields({ onChange }: { onChange: Change }) {
  const [settings, change] = useSettings<"clean">({ stage: "clean", max_characters: 20000, control_characters: true }, onChange);
  return (
    <Group gap="sm" align="end">
      <NumberInput
        label="Longest response, characters (0: no limit)"
        min={0}
        allowDecimal={false}
        value={settings.max_characters}
        onChange={(value) => change({ max_characters: Number(value) || 0 })}
      />
      <Checkbox
        size="xs"
        label="Discard texts with control characters"
        checked={settings.control_characters ?? true}
        onChange={(event) => change({ control_characters: event.currentTarget.checked })}
      />
    </Group>
  );
}

export function NearDuplicateFields({ onChange }: { onChange: Change }) {
  const [settings, change] = useSettings<"near_duplicates">(
    { stage: "near_duplicates", threshold: 0.8, shingle: 3, over: "pair", discard: false },
    onChange,
  );
  return (
    <Group gap="sm" align="end">
      <NumberInput
        label="Least similarity"
        w={120}
        min={0.05}
        max={1}
        step={0.05}
        value={settings.threshold}
        onChange={(value) => change({ threshold: Math.min(1, Math.max(0.05, Number(value) || 0.8)) })}
      />
      <NumberInput
        label="Words of a shingle"
        w={140}
        min={1}
        max={50}
        allowDecimal={false}
        value={settings.shingle}
        onChange={(value) => change({ shingle: Math.max(1, Number(value) || 3) })}
      />
      <Select
        label="Of"
        w={260}
        data={[
          { value: "pair", label: "pairs: prompt and both responses" },
          { value: "prompt", label: "prompts alone" },
        ]}
        value={settings.over ?? "pair"}
        onChange={(value) => value !== null && change({ over: value as "pair" | "prompt" })}
        allowDeselect={false}
      />
      <Checkbox
        size="xs"
        label="Discard all but the kept of each cluster"
        checked={settings.discard ?? false}
        onChange={(event) => change({ discard: event.currentTarget.checked })}
      />
    </Group>
  );
}

export function DecontaminateFields({ options, onChange }: { options: Options; onChange: Change }) {
  const [settings, change] = useSettings<"decontaminate">(
    { stage: "decontaminate", benchmarks: [], ngram: 13, unit: "word", discard: true },
    onChange,
  );
  return (
    <Group gap="sm" align="end">
      <MultiSelect
        label="Benchmarks (none: all of them)"
        w={280}
        data={options.benchmarks}
        value={settings.benchmarks ?? []}
        onChange={(benchmarks) => change({ benchmarks })}
      />
      <NumberInput
        label="Units in common"
        w={130}
        min={1}
        max={200}
        allowDecimal={false}
        value={settings.ngram}
        onChange={(value) => change({ ngram: Math.max(1, Number(value) || 13) })}
      />
      <Select
        label="Units"
        w={130}
        data={["word", "character"]}
        value={settings.unit ?? "word"}
        onChange={(value) => value !== null && change({ unit: value as "word" | "character" })}
        allowDeselect={false}
      />
      <Checkbox
        size="xs"
        label="Discard what overlaps"
        checked={settings.discard ?? true}
        onChange={(event) => change({ discard: event.currentTarget.checked })}
      />
    </Group>
  );
}

export function VerifyFields({ options, onChange }: { options: Options; onChange: Change }) {
  const [settings, change] = useSettings<"verify">({ stage: "verify", share: 1, sources: [] }, onChange);
  return (
    <Group gap="sm" align="end">
      <NumberInput
        label="Share of the prompts"
        w={150}
        min={0}
        max={1}
        step={0.1}
        value={settings.share}
        onChange={(value) => change({ share: Math.min(1, Math.max(0, Number(value))) })}
      />
      <MultiSelect
        label="Sources (none: all of them)"
        w={320}
        data={options.sources}
        value={settings.sources ?? []}
        onChange={(sources) => change({ sources })}
      />
    </Group>
  );
}
