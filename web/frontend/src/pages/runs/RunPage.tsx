import { Alert, Anchor, Breadcrumbs, Group, Stack, Tabs, Text, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link, useLocation, useNavigate, useParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { Problem } from "../../api/problems";
import { useAllows } from "../../api/session";
import { Empty, Failure, Waiting } from "../../components/States";
import { duration } from "../../format/duration";
import { moment } from "../../format/moment";
import { t } from "../../i18n";
import { Command } from "../../components/Command";
import { ResumeRun } from "../jobs/ResumeRun";
import { useRunCurves } from "./curves";
import { goesOn, title } from "./format";
import { RunNote } from "./NoteRuns";
import { RunActions, TrackedRuns } from "./RunActions";
import { AlertsOfRun } from "./RunAlerts";
import { RunConsole } from "./RunConsole";
import { RunCurves } from "./RunCurves";
import { RunLinks } from "./RunLinks";
import { RunLoop } from "./RunLoop";
import { RunResources } from "./RunResources";
import { RunMarks } from "./RunRows";
import { RunSamples } from "./RunSamples";
import { RunSettings } from "./RunSettings";
import { RunStatus } from "./RunStatus";
import { RunTables } from "./RunTables";

type Detail = Schemas["RunDetail"];

/** One run: its metrics, samples, configuration and results. */
export function RunPage() {
  const { id = "" } = useParams();
  const queries = useQueryClient();
  const detail = useQuery({
    queryKey: ["run", id],
    queryFn: () => body(api.GET("/api/runs/{run_id}", { params: { path: { run_id: id } } })),
    refetchInterval: ({ state: { data } }) => (data !== undefined && goesOn(data.run.status) ? 3000 : false),
  });
  const curves = useRunCurves(id, detail.data === undefined || detail.data.curves || goesOn(detail.data.run.status));
  const running = curves.data?.running;
  useEffect(() => {
    // It has begun or ended: the rest of the page changes too.
    if (running !== undefined) void queries.invalidateQueries({ queryKey: ["run", id], exact: true });
  }, [queries, id, running]);
  if (detail.isPending) return detail.failureReason === null ? <Waiting /> : <Failure error={detail.failureReason} />;
  if (detail.data === undefined) return <Missing id={id} error={detail.error} />;
  return (
    <Stack gap="sm">
      <Header detail={detail.data} />
      <About detail={detail.data} />
      <AlertsOfRun run={id} />
      <Notices detail={detail.data} />
      <RunTabs
        detail={detail.data}
        curves={<RunCurves curves={curves} run={detail.data.run} />}
        loop={<RunLoop id={id} curves={curves.data} />}
      />
    </Stack>
  );
}

function Missing({ id, error }: { id: string; error: unknown }) {
  const unknown = error instanceof Problem && (error.status === 404 || error.status === 422);
  if (!unknown) return <Failure error={error} />;
  return (
    <Empty title={t("There is no such run")}>
      {t("This workspace has no {{id}}.", { id })}{" "}
      <Anchor component={Link} to="/runs" size="sm">
        {t("The list of runs")}
      </Anchor>
    </Empty>
  );
}

function Header({ detail }: { detail: Detail }) {
  const { run } = detail;
  return (
    <>
      <Breadcrumbs>
        <Anchor component={Link} to="/runs" size="sm">
          {t("Runs")}
        </Anchor>
        <Text size="sm" className="dim" ff="monospace" style={{ overflowWrap: "anywhere" }}>
          {run.id}
        </Text>
      </Breadcrumbs>
      <Group justify="space-between" gap="xs">
        <Group gap="xs">
          <Title order={1} style={{ overflowWrap: "anywhere" }}>
            {title(run)}
          </Title>
          <RunStatus status={run.status} warnings={run.warnings} />
          <RunMarks run={run} />
          <Text size="sm" className="dim">
            {[run.kind, t("started {{when}}", { when: moment(run.started) }), run.seconds === null ? "" : duration(run.seconds)].filter(Boolean).join(", ")}
          </Text>
        </Group>
        <RunActions detail={detail} />
      </Group>
    </>
  );
}

/** What people wrote, and where else the run is. */
function About({ detail }: { detail: Detail }) {
  return (
    <Group gap="4px 16px">
      <RunNote key={detail.run.id} run={detail.run} allowed={useAllows("curate")} />
      <TrackedRuns trackers={detail.trackers} />
    </Group>
  );
}

function Notices({ detail }: { detail: Detail }) {
  const { run, stop } = detail;
  return (
    <>
      {run.warnings.length > 0 && (
        <Alert color="orange" title={t("Its figures need care")} role="status">
          {run.warnings.map((warning) => (
            <Text key={warning} size="sm">
              {warning}
            </Text>
          ))}
        </Alert>
      )}
      {run.status === "ending" && (
        <Alert color="gray" title={t("Ending")} role="status">
          {stop === null ? t("Its end was asked for.") : t("{{name}} asked for its end at {{when}}.", { name: stop.by, when: moment(stop.at) })}{" "}
          {t("It finishes its step, saves its checkpoint and ends.")}
        </Alert>
      )}
      {run.status === "failed" && (
        <Alert color="red" title={t("It failed")} role="alert">
          <Text size="sm" ff="monospace" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
            {run.error}
          </Text>
          {detail.resume_command !== null && <GoOn line={detail.resume_command} />}
        </Alert>
      )}
      {run.status === "interrupted" && (
        <Alert color="yellow" title={t("It was ended before its time")} role="status">
          {run.error === "process gone" && `${t("Its process is gone without a word: killed, or the machine was.")} `}
          {stop !== null && `${t("{{name}} asked for its end at {{when}}.", { name: stop.by, when: moment(stop.at) })} `}
          {detail.resumed_in.length > 0 && (
            <>
              {t("It is resumed in")}{" "}
              {detail.resumed_in.map((id) => (
                <Anchor key={id} component={Link} to={`/runs/${id}`} size="sm" ff="monospace" mr={6}>
                  {id}
                </Anchor>
              ))}
            </>
          )}
          {detail.resume_command !== null && detail.resumed_in.length === 0 && <GoOn line={detail.resume_command} />}
          {detail.resume_command === null && detail.resumed_in.length === 0 && t("Nothing was saved to resume from.")}
        </Alert>
      )}
    </>
  );
}

function GoOn({ line }: { line: string }) {
  return (
    <Group gap={6} mt={4}>
      <Text size="sm">{t("Resume with")}</Text>
      <Command line={line} />
      <ResumeRun line={line} />
    </Group>
  );
}

/** Where somebody who has seen a policy's page looks for the tab. */
function NoSamples() {
  return (
    <Text size="xs" className="dim" mt="sm">
      {t("Samples by step are of runs that write responses: policies and judges under reinforcement. A reward model reads pairs and writes none. With --eval-data, its rewards of each held-out row are in items.jsonl of the run's folder when it has ended.")}
    </Text>
  );
}

const TABS = ["curves", "loop", "measures", "samples", "console", "resources", "settings", "lineage"] as const;

function RunTabs({ detail, curves, loop }: { detail: Detail; curves: React.ReactNode; loop: React.ReactNode }) {
  const { run } = detail;
  const navigate = useNavigate();
  const requested = useLocation().pathname.split("/")[3];
  const has = detail.curves || goesOn(run.status);
  const measured = detail.tables.length > 0;
  const current = TABS.find((tab) => tab === requested) ?? (has ? "curves" : measured ? "measures" : "settings");
  return (
    <Tabs value={current} onChange={(tab) => void navigate(tab === "curves" ? `/runs/${run.id}` : `/runs/${run.id}/${tab}`)} keepMounted={false}>
      <Tabs.List mb="sm">
        {has && <Tabs.Tab value="curves">{t("Curves")}</Tabs.Tab>}
        {detail.loop && <Tabs.Tab value="loop">{t("Online loop")}</Tabs.Tab>}
        {measured && <Tabs.Tab value="measures">{t("Measures")}</Tabs.Tab>}
        {detail.samples && <Tabs.Tab value="samples">{t("Samples")}</Tabs.Tab>}
        {(detail.console || goesOn(run.status)) && <Tabs.Tab value="console">{t("Console")}</Tabs.Tab>}
        {detail.resources && <Tabs.Tab value="resources">{t("Machine")}</Tabs.Tab>}
        <Tabs.Tab value="settings">{t("Settings")}</Tabs.Tab>
        <Tabs.Tab value="lineage">{t("Lineage")}</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="curves">
        {curves}
        {run.kind === "train" && !detail.samples && <NoSamples />}
      </Tabs.Panel>
      <Tabs.Panel value="loop">{loop}</Tabs.Panel>
      <Tabs.Panel value="measures">
        <RunTables tables={detail.tables} />
      </Tabs.Panel>
      <Tabs.Panel value="samples">
        <RunSamples id={run.id} running={goesOn(run.status)} />
      </Tabs.Panel>
      <Tabs.Panel value="console">
        <RunConsole id={run.id} running={goesOn(run.status)} />
      </Tabs.Panel>
      <Tabs.Panel value="resources">
        <RunResources id={run.id} running={goesOn(run.status)} />
      </Tabs.Panel>
      <Tabs.Panel value="settings">
        <RunSettings detail={detail} />
      </Tabs.Panel>
      <Tabs.Panel value="lineage">
        <RunLinks detail={detail} />
      </Tabs.Panel>
    </Tabs>
  );
}
