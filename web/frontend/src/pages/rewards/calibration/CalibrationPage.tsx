import { Code, Select, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { useSearchParams } from "react-router";

import { api, body } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty, Failure, Waiting } from "../../../components/States";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { short } from "../format";
import { CalibrationTable } from "./CalibrationTable";
import { ReliabilityRun } from "./ReliabilityRun";

/** What a stated probability is worth: reliability as runs measured it, and which calibration stored scores follow. */
export function CalibrationPage() {
  const { data, failureReason: error } = useQuery({ queryKey: ["rewards", "calibration"], queryFn: () => body(api.GET("/api/rewards/calibration")) });
  const [search, setSearch] = useSearchParams();
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.runs.length === 0 && data.calibrations.length === 0)
    return (
      <Empty title={t("No calibration and no reliability has been measured")}>
        {t("It is fitted on pairs that people have verified.")}
        <StartHere actions={[["/jobs/new/calibrate", t("Calibrate a model")]]} />
      </Empty>
    );
  const run = data.runs.find((one) => one.run_id === search.get("run")) ?? data.runs[0];
  return (
    <Stack gap="md">
      {run === undefined ? (
        <Text size="sm">
          <Trans
            i18nKey="No run of this workspace has recorded its reliability bins. <code>assay calibrate --model NAME --data GOLD</code> does."
            components={{ code: <Code /> }}
          />
        </Text>
      ) : (
        <>
          <Select
            label={t("Measured by")}
            data={data.runs.map((one) => ({
              value: one.run_id,
              label: t(one.kind === "calibrate" ? "{{model}} on {{data}}, calibrated {{at}}" : "{{model}} on {{data}}, evaluated {{at}}", {
                model: `${one.model} ${short(one.version)}`,
                data: one.data,
                at: momentInWords(one.at),
              }),
            }))}
            value={run.run_id}
            onChange={(id) => id !== null && setSearch({ run: id })}
            allowDeselect={false}
            maw={620}
          />
          <ReliabilityRun run={run} />
        </>
      )}
      <section aria-label={t("Calibrations in the store")}>
        <Title order={2} mb={4}>{t("Calibrations in the store")}</Title>
        {data.calibrations.length === 0 ? (
          <Text size="sm">
            <Trans
              i18nKey="None: stored scores have no probability. <code>assay calibrate --model NAME --data GOLD</code> fits one and gives stored scores theirs."
              components={{ code: <Code /> }}
            />
          </Text>
        ) : (
          <CalibrationTable calibrations={data.calibrations} />
        )}
      </section>
    </Stack>
  );
}
