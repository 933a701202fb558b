import { Alert, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api, body } from "../../api/client";
import { duration } from "../../format/duration";
import { t } from "../../i18n";
import type { Settings } from "./useJobs";

const GIB = 2 ** 30;

/** Memory and time of a training on this machine, worked out while the rest is read. */
export function Plan({ kind, settings, steps }: { kind: string; settings: Settings; steps: number | null }) {
  const { data: plan, error } = useQuery({
    queryKey: ["jobs", "plan", kind, settings],
    queryFn: () => body(api.POST("/api/jobs/plan", { body: { kind, settings } })),
    staleTime: Infinity,
    retry: false,
  });
  if (error !== null) return null; // the estimate says what the settings are refused with
  if (plan === undefined)
    return (
      <Text size="sm" className="dim" role="status">
        {t("Working out memory and time on this machine. It can be started before.")}
      </Text>
    );
  if (plan.needed === null || plan.usable === null)
    return (
      <Text size="sm" className="dim">
        {t("Memory and time are not known")}: {plan.why}
      </Text>
    );
  const values = { needed: gib(plan.needed), usable: gib(plan.usable) };
  if (plan.fits === false)
    return (
      <Alert color="red" py={6}>
        {t("It does not fit this machine: it needs {{needed}} of {{usable}} GiB. Less takes a smaller base, a LoRA rank, shorter conversations.", values)}
      </Alert>
    );
  const least = plan.seconds_a_step === null || steps === null ? null : plan.seconds_a_step * steps;
  return (
    <Text size="sm">
      {t("It fits this machine: {{needed}} of {{usable}} GiB.", values)}{" "}
      {least !== null ? t("It takes at least {{time}}.", { time: duration(Math.max(1, least)) }) : t("How long it takes is not known.")}
    </Text>
  );
}

function gib(bytes: number): string {
  return (bytes / GIB).toFixed(bytes < GIB ? 2 : 1);
}
