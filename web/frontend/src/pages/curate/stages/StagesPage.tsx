import { Alert, Anchor, Stack, Text, Title } from "@mantine/core";
import { useState } from "react";
import { Trans } from "react-i18next";
import { Link } from "react-router";

import { useAllows } from "../../../api/session";
import { t } from "../../../i18n";
import { Loaded } from "../shared/Loaded";
import { StageCard } from "./StageCard";
import { StageForm } from "./StageForm";
import { StageProgress } from "./StageProgress";
import { StartDialog } from "./StartDialog";
import { goesOn, useStages, type Settings, type Stage } from "./useStages";

/** What goes on, what was run, and beginning a stage. */
export function StagesPage() {
  const query = useStages();
  const allowed = useAllows("curate");
  const [requested, setAsked] = useState<Settings | null>(null);
  return (
    <Stack gap="sm">
      <Loaded query={query}>
        {({ stages, elsewhere, elsewhere_progress, now: clock }) => {
          const now = stages.find(goesOn);
          const free = now === undefined && elsewhere === null;
          return (
            <Stack gap="sm">
              {elsewhere !== null && (
                <Alert color="blue" py={6}>
                  <Anchor component={Link} to={`/runs/${elsewhere}`} size="sm">
                    {elsewhere}
                  </Anchor>{" "}
                  {t("is going on, started outside this page. One stage at a time.")}
                  <StageProgress counts={elsewhere_progress} going now={clock} />
                </Alert>
              )}
              {now !== undefined && <StageCard stage={now} allowed={allowed} free={false} now={clock} onAgain={setAsked} />}
              {allowed ? (
                <StageForm free={free} onReady={setAsked} />
              ) : (
                <Text size="sm" className="dim">
                  {t("Starting and pausing stages takes the role curator.")}
                </Text>
              )}
              <Title order={2}>{t("Before")}</Title>
              {stages.every(goesOn) && (
                <Text size="sm" className="dim">
                  <Trans
                    i18nKey="No stage has been started from this page. Those of the command line are among the <a>runs</a>."
                    components={{ a: <Anchor component={Link} to="/runs" size="sm" /> }}
                  />
                </Text>
              )}
              {stages
                .filter((stage) => !goesOn(stage))
                .map((stage) => (
                  <StageCard key={stage.id} stage={stage} allowed={allowed} free={free} now={clock} later={startedSince(stages, stage)} onAgain={setAsked} />
                ))}
            </Stack>
          );
        }}
      </Loaded>
      {requested !== null && <StartDialog settings={requested} onClose={() => setAsked(null)} />}
    </Stack>
  );
}

/** Whether a later one of the stages, the newest first, has the same settings. */
function startedSince(stages: Stage[], stage: Stage): boolean {
  const settings = JSON.stringify(stage.settings);
  return stages.slice(0, stages.indexOf(stage)).some((other) => JSON.stringify(other.settings) === settings);
}
