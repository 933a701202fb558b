import { Alert, Anchor, Stack, Text, Title } from "@mantine/core";
import { Link } from "react-router";

import { t } from "../../i18n";
import { Loaded } from "../curate/shared/Loaded";
import { JobCard } from "./JobCard";
import { JobProgress } from "./JobProgress";
import { goesOn, useJobs, type Area } from "./useJobs";

/** The jobs of an area, or all: those that go on first. */
export function JobList({ area }: { area?: Area[] }) {
  const query = useJobs(area);
  return (
    <Loaded query={query}>
      {({ jobs, total, elsewhere, elsewhere_progress, now }) => {
        const going = jobs.filter(goesOn);
        const ended = jobs.filter((job) => !goesOn(job));
        return (
          <Stack gap="sm">
            {elsewhere !== null && (
              <Alert color="blue" py={6}>
                <Anchor component={Link} to={`/runs/${elsewhere}`} size="sm">
                  {elsewhere}
                </Anchor>{" "}
                {t("is going on, started outside this page. Jobs that hold the store wait for it.")}
                <JobProgress counts={elsewhere_progress} going now={now} />
              </Alert>
            )}
            {going.map((job) => (
              <JobCard key={job.id} job={job} now={now} />
            ))}
            {ended.length > 0 && <Title order={2}>{t("Before")}</Title>}
            {jobs.length === 0 && (
              <Text size="sm" className="dim">
                {t("No job has been started from this page. Work of the command line is among the runs.")}
              </Text>
            )}
            {ended.map((job) => (
              <JobCard key={job.id} job={job} now={now} />
            ))}
            {total > jobs.length && (
              <Text size="sm" className="dim">
                {t("The newest of {{count}} jobs.", { count: total })}
              </Text>
            )}
          </Stack>
        );
      }}
    </Loaded>
  );
}
