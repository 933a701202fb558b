import { Code, MultiSelect, NumberInput, Select, SimpleGrid, Text } from "@mantine/core";
import { Trans } from "react-i18next";

import { poolChoices } from "../../../components/PoolBadge";
import { t } from "../../../i18n";
import { useSettings, type Change, type Of } from "./useSettings";
import type { Options } from "./useStages";

type Pools = NonNullable<Of<"judge">["pools"]>;
const POOLS: Pools = ["unverified", "gold", "silver", "recycled", "pending", "discarded"];

/** Which judges are asked about what. */
export function JudgeFields({ options, onChange }: { options: Options; onChange: Change }) {
  const [settings, change] = useSettings<"judge">(
    { stage: "judge", judges: options.judge_files[0] ?? "", pools: [], sources: [], limit: null, max_cost: null },
    onChange,
    ({ judges }) => judges !== "",
  );
  if (options.judge_files.length === 0)
    return (
      <Text size="sm">
        <Trans
          i18nKey={"No judges are described in this workspace yet. Put a YAML file with a list <code>judges</code> into its folder <code2>loops</code2>, for example <code3>judges: [{kind: local, model: smollm2}]</code3>"}
          components={{ code: <Code />, code2: <Code />, code3: <Code /> }}
        />
      </Text>
    );
  return (
    <SimpleGrid cols={{ base: 1, xs: 2, md: 3 }} spacing="sm">
      <Select
        label={t("Judges")}
        data={options.judge_files}
        value={settings.judges}
        onChange={(judges) => judges !== null && change({ judges })}
        allowDeselect={false}
      />
      <NumberInput
        label={t("At most so many comparisons (empty: all)")}
        min={1}
        allowDecimal={false}
        value={settings.limit ?? ""}
        onChange={(value) => change({ limit: value === "" ? null : Math.max(1, Number(value)) })}
      />
      <NumberInput
        label={t("Budget (empty: none)")}
        min={0}
        value={settings.max_cost ?? ""}
        onChange={(value) => change({ max_cost: value === "" ? null : Number(value) })}
      />
      <MultiSelect
        label={t("Pools (none: all but discarded and pending)")}
        data={poolChoices(POOLS)}
        value={settings.pools ?? []}
        onChange={(pools) => change({ pools: pools as Pools })}
      />
      <MultiSelect
        label={t("Sources (none: all of them)")}
        data={options.sources}
        value={settings.sources ?? []}
        onChange={(sources) => change({ sources })}
      />
    </SimpleGrid>
  );
}
