import { Anchor, Group, Stack } from "@mantine/core";
import { Link } from "react-router";

import { t } from "../../i18n";
import { JobList } from "../jobs/JobList";
import { StartMenu } from "../jobs/StartMenu";
import type { Area } from "../jobs/useJobs";

const AREAS: Area[] = ["data", "curation"];

/** The jobs of data and curation, and starting one. */
export function StagesPage() {
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <StartMenu areas={AREAS} label={t("Begin a stage")} />
        <Anchor component={Link} to="/jobs" size="sm">
          {t("All jobs")}
        </Anchor>
      </Group>
      <JobList area={AREAS} />
    </Stack>
  );
}
