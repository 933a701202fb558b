import "./jobs.css";

import { Group, Stack, Title } from "@mantine/core";
import { Route, Routes } from "react-router";

import { Empty } from "../../components/States";
import { t } from "../../i18n";
import { JobList } from "./JobList";
import { JobPage } from "./JobPage";
import { NewJobPage } from "./NewJobPage";
import { StartMenu } from "./StartMenu";

/** The area Jobs: everything long that was started from the page, and starting it. */
export default function JobsPage() {
  return (
    <Routes>
      <Route index element={<AllJobs />} />
      <Route path="new/:kind" element={<NewJobPage />} />
      <Route path=":job" element={<JobPage />} />
      <Route path="*" element={<Empty title={t("There is no such page")} />} />
    </Routes>
  );
}

function AllJobs() {
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>{t("Jobs")}</Title>
        <StartMenu areas={["data", "curation", "rewards", "policies"]} />
      </Group>
      <JobList />
    </Stack>
  );
}
