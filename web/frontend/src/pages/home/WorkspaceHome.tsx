import { Alert, Anchor, Badge, Button, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { IconArrowRight, IconCheck } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body } from "../../api/client";
import { useAllows } from "../../api/session";
import { Failure, Waiting } from "../../components/States";
import { momentInWords } from "../../format/moment";
import { count } from "../../format/count";
import { t } from "../../i18n";
import { JobCard } from "../jobs/JobCard";
import { goesOn, useJobs } from "../jobs/useJobs";
import { RunStatus } from "../runs/RunStatus";
import { QueueCard } from "./OwnQueues";
import { nextStep, stepsOf, type Step } from "./steps";
import { useHome } from "./useHome";

/** What is in the workspace and the next step; what goes on; the latest runs. */
export function WorkspaceHome() {
  const home = useHome();
  const curates = useAllows("curate");
  const figures = home.data?.figures;
  if (figures == null)
    return home.failureReason !== null ? <Failure error={home.failureReason} /> : home.data === undefined ? <Waiting /> : <Alert color="yellow">{home.data.held}</Alert>;
  const steps = stepsOf(figures);
  const next = nextStep(steps);
  return (
    <Stack gap="lg" maw={1400}>
      <Group justify="space-between">
        <Title order={1}>{t("Home")}</Title>
        {curates && (
          <Anchor component={Link} to="/first-hour" size="sm">
            {t("The first hour, step by step")}
          </Anchor>
        )}
      </Group>
      {home.data?.held != null && <Alert color="yellow">{t("A command is writing to the workspace: these are the figures from before.")}</Alert>}
      {curates && next !== null && <Next step={next} first={figures.comparisons === 0} />}
      <Way steps={steps} next={next} linked={curates} />
      <Going />
      <SimpleGrid cols={{ base: 1, lg: 2 }} spacing="lg">
        <OpenQueues />
        <LatestRuns />
      </SimpleGrid>
    </Stack>
  );
}

function Next({ step, first }: { step: Step; first: boolean }) {
  return (
    <div className="panel home-next">
      <Group justify="space-between" gap="md">
        <div className="home-grows">
          <Text size="sm" className="dim">
            {t("Next")}
          </Text>
          <Title order={2}>{step.title}</Title>
          <Text size="sm">{step.why}</Text>
        </div>
        <Group gap="xs">
          {first && (
            <Button component={Link} to="/first-hour" variant="default" size="md">
              {t("Try it with a sample")}
            </Button>
          )}
          <Button component={Link} to={step.to} size="md" rightSection={<IconArrowRight size={18} />}>
            {step.action}
          </Button>
        </Group>
      </Group>
    </div>
  );
}

/** All steps, with what there is of each; each leads to where it is done, also again. */
function Way({ steps, next, linked }: { steps: Step[]; next: Step | null; linked: boolean }) {
  return (
    <ol className="home-way" aria-label={t("From a file to a policy")}>
      {steps.map((step) => (
        <li key={step.key} data-state={step.done ? "done" : step === next ? "next" : "open"}>
          <span className="home-mark" role="img" aria-label={step.done ? t("done") : step === next ? t("next") : t("open")}>
            {step.done && <IconCheck size={13} />}
          </span>
          <span>
            {linked ? (
              <Anchor component={Link} to={step.to} size="sm">
                {step.title}
              </Anchor>
            ) : (
              <Text size="sm" span>
                {step.title}
              </Text>
            )}
            {step.figure !== null && (
              <Text size="xs" className="dim home-figure" span>
                {step.figure}
              </Text>
            )}
          </span>
        </li>
      ))}
    </ol>
  );
}

function OpenQueues() {
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => body(api.GET("/api/queues")) });
  const open = queues.data?.filter(({ closed }) => !closed) ?? [];
  return (
    <section>
      <Title order={2} size="h4" mb="xs">
        {t("Open queues")}
      </Title>
      <Stack gap="xs">
        {queues.data !== undefined && open.length === 0 && (
          <Text size="sm" className="dim">
            {t("No queue is open.")}
          </Text>
        )}
        {open.slice(0, 4).map((queue) => (
          <QueueCard key={queue.name} queue={queue} />
        ))}
        {open.length > 4 && (
          <Anchor component={Link} to="/annotate" size="sm">
            {t("All {{queues}} open queues", { queues: count(open.length) })}
          </Anchor>
        )}
      </Stack>
    </section>
  );
}

function LatestRuns() {
  const runs = useQuery({ queryKey: ["runs", "latest"], queryFn: () => body(api.GET("/api/runs", { params: { query: { limit: 6 } } })), refetchInterval: 10_000 });
  return (
    <section>
      <Title order={2} size="h4" mb="xs">
        {t("Latest runs")}
      </Title>
      {runs.data !== undefined && runs.data.runs.length === 0 && (
        <Text size="sm" className="dim">
          {t("Nothing has run yet.")}
        </Text>
      )}
      <Stack gap={4}>
        {runs.data?.runs.map((run) => (
          <Group key={run.id} gap="xs" wrap="nowrap" justify="space-between">
            <Group gap="xs" wrap="nowrap" className="home-grows">
              <Badge size="xs" variant="light" color="gray" tt="none">
                {run.kind}
              </Badge>
              <Anchor component={Link} to={`/runs/${run.id}`} size="sm" truncate>
                {run.name ?? run.id}
              </Anchor>
            </Group>
            <Group gap="xs" wrap="nowrap">
              <Text size="xs" className="dim" visibleFrom="sm">
                {momentInWords(run.started)}
              </Text>
              <RunStatus status={run.status} />
            </Group>
          </Group>
        ))}
      </Stack>
    </section>
  );
}

/** Jobs that go on, and the last one that has ended. */
function Going() {
  const jobs = useJobs(undefined, 10);
  if (jobs.data === undefined || jobs.data.jobs.length === 0) return null;
  const going = jobs.data.jobs.filter(goesOn);
  const last = jobs.data.jobs.find((job) => !goesOn(job));
  return (
    <section>
      <Title order={2} size="h4" mb="xs">
        {t("Jobs")}
      </Title>
      <Stack gap="xs">
        {[...going, ...(last === undefined ? [] : [last])].map((job) => (
          <JobCard key={job.id} job={job} now={jobs.data.now} />
        ))}
        <Anchor component={Link} to="/jobs" size="sm">
          {t("All jobs")}
        </Anchor>
      </Stack>
    </section>
  );
}
