import { Anchor, Breadcrumbs, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import type { ChartSeries } from "../../components/chartData";
import { LiveChart } from "../../components/LiveChart";
import { Empty, Failure, Waiting } from "../../components/States";
import { NONE } from "../../format/none";
import { seriesOf, useRunCurves, type Curves } from "./curves";
import { figure, title, type RunRow } from "./format";
import { RunStatus } from "./RunStatus";

/** Two to four runs on the same charts, and the settings in which they differ. */
export function CompareRuns() {
  const [address] = useSearchParams();
  const ids = [...new Set(address.getAll("run"))].slice(0, 4);
  const { data, failureReason: error } = useQuery({
    queryKey: ["runs", "compare", ids],
    enabled: ids.length >= 2,
    queryFn: () => body(api.GET("/api/runs/compare", { params: { query: { run: ids } } })),
  });
  // Always four, as hooks go: those that were not asked for ask for nothing.
  const first = useRunCurves(ids[0] ?? "", ids.length > 0);
  const second = useRunCurves(ids[1] ?? "", ids.length > 1);
  const third = useRunCurves(ids[2] ?? "-", ids.length > 2);
  const fourth = useRunCurves(ids[3] ?? "--", ids.length > 3);
  if (ids.length < 2)
    return (
      <Empty title="Choose two to four runs">
        Mark them in <Anchor component={Link} to="/runs" size="sm">the list</Anchor> and press Compare.
      </Empty>
    );
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  const curves = [first, second, third, fourth].slice(0, ids.length).map((loaded) => loaded.data);
  return (
    <Stack gap="sm">
      <Breadcrumbs>
        <Anchor component={Link} to="/runs" size="sm">
          Runs
        </Anchor>
        <Text size="sm">Compare</Text>
      </Breadcrumbs>
      <Title order={1}>{`${ids.length} runs side by side`}</Title>
      <Differences data={data} names={labels(data.runs)} />
      <Charts runs={data.runs} names={labels(data.runs)} curves={curves} />
    </Stack>
  );
}

/** Names; those that several runs share are told apart by the end of the id. */
function labels(runs: RunRow[]): string[] {
  return runs.map((run) => (runs.filter((other) => title(other) === title(run)).length > 1 ? `${title(run)} ${run.id.slice(-6)}` : title(run)));
}

function Differences({ data, names }: { data: Schemas["ComparedRuns"]; names: string[] }) {
  return (
    <section aria-label="Differences">
      <Table.ScrollContainer minWidth={160 + 150 * names.length} className="panel" style={{ padding: 0 }} scrollAreaProps={{ viewportProps: { tabIndex: 0, role: "group", "aria-label": "Differences of the settings" } }}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Setting</Table.Th>
              {data.runs.map((run, number) => (
                <Table.Th key={run.id} scope="col">
                  <Group gap={6}>
                    <Anchor component={Link} to={`/runs/${run.id}`} size="sm">
                      {names[number]}
                    </Anchor>
                    <RunStatus status={run.status} warnings={run.warnings} />
                  </Group>
                  <Text size="xs" className="dim" fw={400}>
                    {figure(run.figure)}
                  </Text>
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
      </Table.ScrollContainer>
      <Text size="xs" className="dim" mt={4}>
        {data.differences.length === 0 ? "All settings are the same." : data.same === 0 ? "No setting is the same." : `${data.same} other settings are the same.`}
      </Text>
    </section>
  );
}

function Charts({ runs, names, curves }: { runs: RunRow[]; names: string[]; curves: (Curves | undefined)[] }) {
  if (curves.some((one) => one === undefined)) return <Waiting what="Loading the curves" />;
  const loaded = curves as Curves[];
  const merged = new Map<string, { chart: Curves["charts"][number]; title: string; series: ChartSeries[] }>();
  loaded.forEach((one, number) => {
    for (const chart of one.charts) {
      // Bands of several runs over one another are no longer to be told apart; nor are many curves of each.
      const apart = chart.curves.length > 2 || chart.x !== "step";
      seriesOf(chart, one).forEach(({ name, x, y }, index) => {
        const title = apart ? `${chart.title}: ${name}` : chart.title;
        const entry = merged.get(`${chart.section}: ${title}`) ?? { chart, title, series: [] };
        const label = apart || chart.curves.length === 1 ? names[number]! : `${names[number]}: ${name}`;
        entry.series.push({ name: label, x, y, colour: number, dashed: !apart && index === 1 });
        merged.set(`${chart.section}: ${title}`, entry);
      });
    }
  });
  if (merged.size === 0) return <Empty title="None of these runs has curves" />;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm" verticalSpacing="sm">
      {[...merged].map(([key, { chart, title: heading, series }]) => (
        <LiveChart
          key={key}
          title={heading}
          series={series}
          unit={chart.unit}
          share={chart.share}
          xLabel={chart.x_label}
          dots={chart.x !== "step"}
          {...(chart.x === "step" ? { together: runs.map((run) => run.id).join() } : {})}
        />
      ))}
    </SimpleGrid>
  );
}
