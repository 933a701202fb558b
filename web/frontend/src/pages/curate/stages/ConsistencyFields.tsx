import { Checkbox, MultiSelect, NumberInput, SimpleGrid, TagsInput } from "@mantine/core";

import { t } from "../../../i18n";
import { useSettings, type Change } from "./useSettings";
import type { Options } from "./useStages";

/** The reward models whose agreement decides, and how sure they must be. */
export function ConsistencyFields({ options, onChange }: { options: Options; onChange: Change }) {
  const [settings, change] = useSettings<"consistency">(
    { stage: "consistency", models: options.models.slice(0, 1), keep_above: 0.5, flip_below: 0, sources: [], dry_run: true },
    onChange,
    ({ models }) => models.length > 0,
  );
  const probability = (value: string | number) => Math.min(1, Math.max(0, Number(value) || 0));
  return (
    <SimpleGrid cols={{ base: 1, xs: 2, md: 3 }} spacing="sm">
      <TagsInput
        size="xs"
        label={t("Reward models")}
        description={t("Of the workspace, or of the hub: owner/name")}
        required
        data={options.models}
        value={settings.models}
        onChange={(models) => change({ models })}
      />
      <NumberInput
        label={t("Keep a label")}
        description={t("that every model gives at least this p")}
        min={0}
        max={1}
        step={0.05}
        value={settings.keep_above}
        onChange={(value) => change({ keep_above: probability(value) })}
      />
      <NumberInput
        label={t("Flip it (0: never)")}
        description={t("where every model gives it at most this p")}
        min={0}
        max={1}
        step={0.05}
        value={settings.flip_below}
        onChange={(value) => change({ flip_below: probability(value) })}
      />
      <MultiSelect
        label={t("Sources (none: all of them)")}
        data={options.sources}
        value={settings.sources ?? []}
        onChange={(sources) => change({ sources })}
      />
      <Checkbox
        size="xs"
        label={t("Dry run: say what would be decided")}
        checked={settings.dry_run ?? false}
        onChange={(event) => change({ dry_run: event.currentTarget.checked })}
        style={{ alignSelf: "end" }}
      />
    </SimpleGrid>
  );
}
