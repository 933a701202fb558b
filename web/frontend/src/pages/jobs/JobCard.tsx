import { Anchor, Group, Text } from "@mantine/core";
import { Link } from "react-router";

import { duration } from "../../format/duration";
import { momentInWords } from "../../format/moment";
import { t } from "../../i18n";
import { Command } from "../../components/Command";
import { JobActions } from "./JobActions";
import { JobBadge } from "./JobBadge";
import { JobProgress, JobSpent } from "./JobProgress";
import { goesOn, type Job } from "./useJobs";
import { statusWord, titleOf } from "./words";

/** One job: what it is, how it stands; stopping it, or going on with it. `now`: the server's clock. */
export function JobCard({ job, now, linked = true }: { job: Job; now: number; linked?: boolean }) {
  const going = goesOn(job);
  const title = titleOf(job.kind, job.title);
  return (
    <section className="panel" aria-label={`${title}, ${statusWord(job.status)}`}>
      <Group justify="space-between" gap="xs" align="start">
        <Group gap="xs">
          {linked ? (
            <Anchor component={Link} to={`/jobs/${job.id}`} size="sm" fw={600}>
              {title}
            </Anchor>
          ) : (
            <Text size="sm" fw={600}>
              {title}
            </Text>
          )}
          <JobBadge job={job} />
          <Text size="xs" className="dim">
            {job.by}, {momentInWords(job.started)}
            {job.ended !== null && `, ${duration(job.ended - job.started)}`}
            {going && `, ${t("for {{time}}", { time: duration(Math.max(0, now - job.started)) })}`}
          </Text>
          {job.run_id !== null && (
            <Anchor component={Link} to={`/runs/${job.run_id}`} size="xs">
              {t("its run")}
            </Anchor>
          )}
        </Group>
        <JobActions job={job} />
      </Group>
      <Command line={job.command} />
      <Why job={job} />
      {job.warnings.map((warning) => (
        <Text key={warning} size="sm" mt={4} c="light-dark(var(--mantine-color-orange-9), var(--mantine-color-orange-4))">
          {warning}
        </Text>
      ))}
      {job.status !== "done" && <JobProgress counts={job.progress} going={going} now={now} />}
      <JobSpent spent={job.spent} expected={job.expected} />
    </section>
  );
}

/** Why it stands so, in one line, and where that leads. */
function Why({ job }: { job: Job }) {
  const waits = job.waits_for[0];
  return (
    <>
      {job.why !== null && (
        <Text size="sm" mt={4} style={{ overflowWrap: "anywhere" }}>
          {job.why}
          {job.why.startsWith(t("waiting for people")) && job.resumed_by === null && (
            <>
              {". "}
              <Anchor component={Link} to="/annotate" size="sm">
                {t("Annotate")}
              </Anchor>
            </>
          )}
        </Text>
      )}
      {waits !== undefined && (
        <Text size="sm" mt={4}>
          {t("Begins by itself after")}{" "}
          <Anchor component={Link} to={waits.startsWith("run-") ? `/runs/${waits}` : `/jobs/${waits}`} size="sm">
            {waits.startsWith("run-") ? t("a run from the command line") : t("the job before it")}
          </Anchor>
          {job.waits_for.length > 1 && ` ${t("and {{count}} more", { count: job.waits_for.length - 1 })}`}
        </Text>
      )}
      {job.status === "interrupted" && job.resumed_by === null && (
        <Text size="sm" className="dim">
          {t("Nothing that was stored is lost.")}
        </Text>
      )}
      {(job.resumes ?? job.resumed_by) !== null && (
        <Text size="sm" mt={4}>
          {job.resumes !== null && (
            <>
              {t("Goes on with")}{" "}
              <Anchor component={Link} to={`/jobs/${job.resumes}`} size="sm">
                {t("an earlier job")}
              </Anchor>{" "}
            </>
          )}
          {job.resumed_by !== null && (
            <>
              {t("It went on in")}{" "}
              <Anchor component={Link} to={`/jobs/${job.resumed_by}`} size="sm">
                {t("a later job")}
              </Anchor>
            </>
          )}
        </Text>
      )}
    </>
  );
}
