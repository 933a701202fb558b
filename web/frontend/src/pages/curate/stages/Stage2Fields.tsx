import { Autocomplete, Checkbox, MultiSelect, NumberInput, Select, SimpleGrid } from "@mantine/core";
import { useEffect, useState } from "react";

import { t } from "../../../i18n";
import type { Options, Settings } from "./useStages";

type Stage2 = Extract<Settings, { stage: "stage2" }>;

/** The two models, and who is asked where they differ. */
export function Stage2Fields({ options, onChange }: { options: Options; onChange: (settings: Settings) => void }) {
  const [settings, setSettings] = useState<Stage2>({
    stage: "stage2",
    best: options.models[0] ?? "",
    gold: "",
    judges: null,
    keep_above: 0.5,
    recycle_below: 0,
    max_cost: null,
    sources: [],
    dry_run: true,
  });
  useEffect(() => {
    if (settings.best !== "" && settings.gold !== "") onChange(settings);
  }, [settings, onChange]);
  const change = (changes: Partial<Stage2>) => setSettings((before) => ({ ...before, ...changes }));
  return (
    <SimpleGrid cols={{ base: 1, xs: 2, md: 3 }} spacing="sm">
      <Autocomplete size="xs" label={t("Best reward model")} required data={options.models} value={settings.best} onChange={(best) => change({ best })} />
      <Autocomplete size="xs" label={t("Model trained on gold alone")} required data={options.models} value={settings.gold} onChange={(gold) => change({ gold })} />
      <Select
        label={t("Judges where only the gold model agrees")}
        placeholder={t("nobody")}
        data={options.judge_files}
        value={settings.judges ?? null}
        onChange={(judges) => change({ judges })}
        clearable
        clearButtonProps={{ "aria-label": t("No judges") }}
      />
      <NumberInput label={t("A model agrees above p")} min={0} max={1} step={0.05} value={settings.keep_above} onChange={(value) => change({ keep_above: Number(value) })} />
      <NumberInput label={t("Recycle, flipped, up to p (0: never)")} min={0} max={1} step={0.05} value={settings.recycle_below} onChange={(value) => change({ recycle_below: Number(value) })} />
      <NumberInput label={t("Budget (empty: none)")} min={0} value={settings.max_cost ?? ""} onChange={(value) => change({ max_cost: value === "" ? null : Number(value) })} />
      <MultiSelect label={t("Sources (none: all of them)")} data={options.sources} value={settings.sources ?? []} onChange={(sources) => change({ sources })} />
      <Checkbox
        size="xs"
        label={t("Dry run: say what would be done")}
        checked={settings.dry_run ?? false}
        onChange={(event) => change({ dry_run: event.currentTarget.checked })}
        style={{ alignSelf: "end" }}
      />
    </SimpleGrid>
  );
}
