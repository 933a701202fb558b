import { Anchor, Breadcrumbs, Button, Checkbox, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { memo, useMemo } from "react";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import type { ChartSeries } from "../../components/chartData";
import { LiveChart } from "../../components/LiveChart";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { NONE } from "../../format/none";
import { t } from "../../i18n";
import { chartText } from "./chartTexts";
import { meanOverSeeds, seriesOf, useManyCurves, type Chart, type Curves } from "./curves";
import { axisLabel, CurveControls, useCurveView, type CurveView } from "./curveView";
import { figure, title, type RunRow } from "./format";
import { Lazily } from "./Lazily";
import { RunStatus } from "./RunStatus";

/** As the server compares at most. */
const MOST = 100;
/** Of more runs the table has a row for each, charts are drawn when they are scrolled to, and bands are left out. */
const FEW = 5;

/** Runs on the same charts, and the settings in which they differ. */
export function CompareRuns() {
  const [address] = useSearchParams();
  const asked = address.getAll("run").join(" ");
  const ids = useMemo(() => [...new Set(asked.split(" ").filter(Boolean))].slice(0, MOST), [asked]);
  const { view, change, onZoom } = useCurveView();
  const seeds = address.get("group") === "seed";
  const hidden = useMemo(() => new Set((address.get("hide") ?? "").split(" ").filter(Boolean)), [address]);
  const { data, failureReason: error } = useQuery({
    queryKey: ["runs", "compare", ids],
    enabled: ids.length >= 2,
    queryFn: () => body(api.GET("/api/runs/compare", { params: { query: { run: ids } } })),
  });
  const curves = useManyCurves(ids.length >= 2 ? ids : []);
  if (ids.length < 2)
    return (
      <Empty title={t("Choose runs to compare")}>
        {t("Mark them in the list and press Compare.")}{" "}
        <Anchor component={Link} to="/runs" size="sm">
          {t("The list of runs")}
        </Anchor>
      </Empty>
    );
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  const names = labels(data.runs);
  const grouped = data.groups.length < data.runs.length;
  const setHidden = (id: string, shown: boolean) => {
    const now = new Set(hidden);
    if (shown) now.delete(id);
    else now.add(id);
    change({ hide: now.size === 0 ? null : [...now].join(" ") });
  };
  const loaded = curves.filter((one) => one.data !== undefined).length;
  return (
    <Stack gap="sm">
      <Breadcrumbs>
        <Anchor component={Link} to="/runs" size="sm">
          {t("Runs")}
        </Anchor>
        <Text size="sm">{t("Compare")}</Text>
      </Breadcrumbs>
      <Group justify="space-between">
        <Title order={1}>{t("{{count}} runs side by side", { count: ids.length })}</Title>
        {data.runs.some((run) => run.kind === "rl") && (
          <Button variant="light" component={Link} to={`/runs/samples?${ids.slice(0, 8).map((id) => `run=${id}`).join("&")}`}>
            {t("Responses side by side")}
          </Button>
        )}
      </Group>
      <Differences data={data} names={names} hidden={hidden} setHidden={setHidden} />
      <CurveControls view={view} change={change}>
        <Checkbox
          size="xs"
          label={grouped ? t("mean over seeds") : t("mean over seeds (none of them differ in seed alone)")}
          disabled={!grouped && !seeds}
          checked={seeds}
          onChange={(event) => change({ group: event.currentTarget.checked ? "seed" : null })}
        />
      </CurveControls>
      {seeds && (
        <Text size="xs" className="dim">
          {t("Runs whose settings differ in seeds and names alone are one curve: their mean where all of them have values, with Student's 95 % interval over the runs. One run has no interval.")}
        </Text>
      )}
      {loaded < ids.length && <Waiting what={t("Loading the curves: {{loaded}} of {{count}} runs", { loaded, count: ids.length })} />}
      <Charts data={data} names={names} curves={curves.map((one) => one.data)} hidden={hidden} view={view} onZoom={onZoom} seeds={seeds} />
    </Stack>
  );
}

/** Names; those that several runs share are told apart by the end of the id. */
function labels(runs: RunRow[]): string[] {
  const counts = new Map<string, number>();
  for (const run of runs) counts.set(title(run), (counts.get(title(run)) ?? 0) + 1);
  return runs.map((run) => (counts.get(title(run))! > 1 ? `${title(run)} ${run.id.slice(-6)}` : title(run)));
}

interface DifferencesProps {
  data: Schemas["ComparedRuns"];
  names: string[];
  hidden: ReadonlySet<string>;
  setHidden: (id: string, shown: boolean) => void;
}

function Differences({ data, names, hidden, setHidden }: DifferencesProps) {
  const name = (run: RunRow, number: number) => (
    <>
      <Group gap={6} wrap="nowrap">
        <Checkbox size="xs" aria-label={t("Draw {{run}}", { run: names[number] })} checked={!hidden.has(run.id)} onChange={(event) => setHidden(run.id, event.currentTarget.checked)} />
        <Anchor component={Link} to={`/runs/${run.id}`} size="sm" style={{ overflowWrap: "anywhere" }}>
          {names[number]}
        </Anchor>
        <RunStatus status={run.status} warnings={run.warnings} />
      </Group>
      <Text size="xs" className="dim" fw={400}>
        {figure(run.figure)}
      </Text>
    </>
  );
  return (
    <section aria-label={t("Differences")}>
      <Wide label={t("Differences of the settings")}>
        <div className="panel" style={{ padding: 0, minWidth: data.runs.length > FEW ? 260 + 120 * data.differences.length : 160 + 170 * names.length, maxHeight: 420, overflowY: "auto" }}>
          {data.runs.length > FEW ? (
            <Table stickyHeader>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th scope="col">{t("Run")}</Table.Th>
                  {data.differences.map((one) => (
                    <Table.Th key={one.name} scope="col" style={{ overflowWrap: "anywhere" }}>
                      {one.name}
                    </Table.Th>
                  ))}
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {data.runs.map((run, number) => (
                  <Table.Tr key={run.id}>
                    <Table.Th scope="row" fw={400}>
                      {name(run, number)}
                    </Table.Th>
                    {data.differences.map((one) => (
                      <Table.Td key={one.name} style={{ overflowWrap: "anywhere" }}>
                        {one.values[number] ?? NONE}
                      </Table.Td>
                    ))}
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          ) : (
            <Table>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th scope="col">{t("Setting")}</Table.Th>
                  {data.runs.map((run, number) => (
                    <Table.Th key={run.id} scope="col">
                      {name(run, number)}
                    </Table.Th>
                  ))}
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {data.differences.map((one) => (
                  <Table.Tr key={one.name}>
                    <Table.Th scope="row" fw={400} className="dim" style={{ overflowWrap: "anywhere" }}>
                      {one.name}
                    </Table.Th>
                    {one.values.map((value, number) => (
                      <Table.Td key={number} style={{ overflowWrap: "anywhere" }}>
                        {value ?? NONE}
                      </Table.Td>
                    ))}
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          )}
        </div>
      </Wide>
      <Text size="xs" className="dim" mt={4}>
        {data.differences.length === 0 ? t("All settings are the same.") : data.same === 0 ? t("No setting is the same.") : t("{{count}} other settings are the same.", { count: data.same })}
      </Text>
    </section>
  );
}

/** A chart of all runs: of a training with many curves, one for each of them. */
interface MergedChart {
  chart: Chart;
  title: string;
  /** By the number of the run. */
  series: Map<number, ChartSeries[]>;
}

interface ChartsProps {
  data: Schemas["ComparedRuns"];
  names: string[];
  curves: (Curves | undefined)[];
  hidden: ReadonlySet<string>;
  view: CurveView;
  onZoom: (zoom: [number, number] | null) => void;
  seeds: boolean;
}

function Charts({ data, names, curves, hidden, view, onZoom, seeds }: ChartsProps) {
  const { axis, smoothing } = view;
  // The replies are what changes; a new list of the same ones is not.
  const replies = useMemo(() => curves, curves); // eslint-disable-line react-hooks/exhaustive-deps, react-hooks/use-memo
  const merged = useMemo(() => mergedCharts(replies, axis, smoothing), [replies, axis, smoothing]);
  const groups = useMemo(() => (seeds ? data.groups : data.runs.map((run) => [run.id])), [data, seeds]);
  if (merged.length === 0) return replies.every((one) => one !== undefined) ? <Empty title={t("None of these runs has curves")} /> : null;
  const together = data.runs.map((run) => run.id).join();
  return (
    <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }} spacing="sm" verticalSpacing="sm">
      {merged.map((one) => (
        <Lazily key={`${one.chart.section}: ${one.title}`} height={250} at={data.runs.length > FEW}>
          <MergedRunChart merged={one} data={data} names={names} groups={groups} hidden={hidden} view={view} onZoom={onZoom} together={together} />
        </Lazily>
      ))}
    </SimpleGrid>
  );
}

function mergedCharts(replies: (Curves | undefined)[], axis: CurveView["axis"], smoothing: number): MergedChart[] {
  const merged = new Map<string, MergedChart>();
  replies.forEach((reply, number) => {
    for (const chart of reply?.charts ?? []) {
      // Bands of several runs over one another are no longer to be told apart; nor are many curves of each.
      const apart = chart.curves.length > 2 || chart.x !== "step";
      for (const series of seriesOf(chart, reply!, smoothing, axis)) {
        const heading = apart ? `${chartText(chart.title)}: ${series.name}` : chartText(chart.title);
        const key = `${chart.section}: ${heading}`;
        if (!merged.has(key)) merged.set(key, { chart, title: heading, series: new Map() });
        const { name, x, y } = series;
        const of = merged.get(key)!.series;
        of.set(number, [...(of.get(number) ?? []), { name, x, y }]);
      }
    }
  });
  return [...merged.values()];
}

interface MergedRunChartProps extends Omit<ChartsProps, "curves" | "seeds"> {
  merged: MergedChart;
  groups: string[][];
  together: string;
}

const MergedRunChart = memo(
  function MergedRunChart({ merged: { chart, title: heading, series }, data, names, groups, hidden, view, onZoom, together }: MergedRunChartProps) {
    const drawn = useMemo(() => {
      const numbers = new Map(data.runs.map((run, number) => [run.id, number]));
      return groups.flatMap((group, colour) => {
        const members = group.filter((id) => !hidden.has(id)).map((id) => numbers.get(id)!).filter((number) => series.has(number));
        if (members.length === 0) return [];
        const label = members.length === 1 ? names[members[0]!]! : t("{{name}}, {{count}} seeds", { name: commonStart(members.map((number) => names[number]!)), count: members.length });
        const curves = [...new Set(members.flatMap((number) => series.get(number)!.map((one) => one.name)))];
        return curves.flatMap((name, index) => {
          const mean = meanOverSeeds(members.flatMap((number) => series.get(number)!.filter((one) => one.name === name)));
          const dashed = (index === 1) !== (Math.floor(colour / 8) % 2 === 1);
          return mean === null ? [] : [{ ...mean, name: curves.length === 1 ? label : `${label}: ${name}`, colour, dashed }];
        });
      });
    }, [data, names, groups, hidden, series]);
    if (drawn.length === 0) return null;
    const ofSteps = chart.x === "step";
    return (
      <LiveChart
        title={heading}
        series={drawn}
        unit={chartText(chart.unit)}
        share={chart.share}
        xLabel={ofSteps ? axisLabel(view.axis) : chartText(chart.x_label)}
        dots={!ofSteps}
        view={ofSteps ? view : { logX: view.logX, logY: view.logY }}
        {...(ofSteps ? { together, onZoom } : {})}
      />
    );
  },
  (before, after) =>
    before.merged === after.merged && before.data === after.data && before.groups === after.groups && before.hidden === after.hidden && before.view === after.view,
);

/** What names of one configuration share: "helpful-s" of "helpful-s0" and "helpful-s1" is "helpful". */
export function commonStart(names: string[]): string {
  let length = 0;
  while (names.every((name) => length < name.length && name[length] === names[0]![length])) length += 1;
  return names[0]!.slice(0, length).replace(/[-_ ]*(s|seed)?[-_ ]*$/i, "") || names[0]!;
}
