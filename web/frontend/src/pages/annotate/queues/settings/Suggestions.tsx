import { MultiSelect, SegmentedControl, Stack, Text, Title } from "@mantine/core";

import { api, body, type Schemas } from "../../../../api/client";
import { t } from "../../../../i18n";
import { useEdit, type Settings } from "./useSettings";

type Time = Schemas["QueueOptionsReply"]["suggestions"];

/** Whether annotators see what judges and reward models say of an item. */
export function Suggestions({ queue, settings: { options, judges } }: { queue: string; settings: Settings }) {
  const store = useEdit(queue, (change: { suggestions?: Time; suggested_by?: string[] }) =>
    body(api.PATCH("/api/queues/{queue}", { params: { path: { queue } }, body: change })),
  );
  return (
    <section className="panel" aria-label={t("Suggestions")}>
      <Title order={2} mb={4}>
        {t("Suggestions")}
      </Title>
      <Stack gap="xs">
        <SegmentedControl
          aria-label={t("When annotators see judges' answers")}
          value={options.suggestions}
          onChange={(suggestions) => store.mutate({ suggestions: suggestions as Time })}
          data={[
            { value: "never", label: t("Never") },
            { value: "after", label: t("After the vote") },
            { value: "before", label: t("Before the vote") },
          ]}
        />
        {options.suggestions !== "never" && (
          <MultiSelect
            label={t("Whose")}
            description={t("None: of all judges and reward models that were asked when the item was queued")}
            data={judges}
            value={options.suggested_by}
            onChange={(suggested_by) => store.mutate({ suggested_by })}
          />
        )}
        <Text size="sm" className="dim">
          {judges.length === 0 ? `${t("No item of this queue carries a judge's answer: there is nothing to show.")} ` : ""}
          {t("Each vote records whether a suggestion was in view, so that an analysis can leave those out.")}
        </Text>
      </Stack>
    </section>
  );
}
