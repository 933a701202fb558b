import { SimpleGrid, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { api, body, type Schemas } from "../../api/client";
import type { ChartSeries } from "../../components/chartData";
import { LiveChart } from "../../components/LiveChart";
import { Empty, Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";

type Resources = Schemas["ResourcesReply"];
const GIB = 2 ** 30;

/** CPU, memory and GPUs that the run used while it ran. */
export function RunResources({ id, running }: { id: string; running: boolean }) {
  const { data, failureReason: error } = useQuery({
    queryKey: ["run", id, "resources"],
    queryFn: () => body(api.GET("/api/runs/{run_id}/resources", { params: { path: { run_id: id } } })),
    refetchInterval: running ? 10_000 : false,
  });
  const charts = useMemo(() => (data === undefined ? [] : chartsOf(data)), [data]);
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.seconds.length === 0) return <Empty title={t("No samples yet")}>{t("The first one is taken a second after the start, then one every ten seconds.")}</Empty>;
  return (
    <Stack gap="sm">
      {error !== null && <Failure error={error} />}
      <SimpleGrid cols={{ base: 1, md: 2, xl: 3 }} spacing="sm" verticalSpacing="sm">
        {charts.map((chart) => (
          <LiveChart key={chart.title} {...chart} xLabel={t("minutes")} together={`${id}/resources`} />
        ))}
      </SimpleGrid>
      <Text size="xs" className="dim">
        {t("Of the run's process and all that it started. GPU figures are of everything that runs on the card.")}
      </Text>
    </Stack>
  );
}

interface ResourceChart {
  title: string;
  unit?: string;
  share?: boolean;
  series: ChartSeries[];
  reference?: { name: string; value: number };
}

function chartsOf({ seconds, columns }: Resources): ResourceChart[] {
  const x = seconds.map((second) => second / 60);
  const series = (name: string, column: string, factor = 1): ChartSeries[] =>
    columns[column] === undefined ? [] : [{ name, x, y: columns[column].map((value) => (value === null ? null : value * factor)) }];
  const last = (column: string) => columns[column]?.findLast((value) => value !== null);
  const limit = (name: string, column: string, factor = 1) => {
    const value = last(column);
    return value == null ? {} : { reference: { name, value: value * factor } };
  };
  const gpus = [...new Set(Object.keys(columns).flatMap((column) => column.match(/^gpu(\d+)_/)?.[1] ?? []))];
  const ofGpus = (column: string, factor = 1) => gpus.flatMap((number) => series(t("GPU {{number}}", { number }), `gpu${number}_${column}`, factor));
  const charts: ResourceChart[] = [
    { title: t("CPU"), unit: t("busy cores"), series: series(t("run"), "cores"), ...limit(t("cores of the machine"), "cores_total") },
    { title: t("Memory"), unit: t("GiB"), series: [...series(t("run"), "memory", 1 / GIB), ...series(t("whole machine"), "machine_memory", 1 / GIB)], ...limit(t("of the machine"), "machine_memory_total", 1 / GIB) },
    { title: t("Processes"), series: series(t("run"), "processes") },
    { title: t("GPU use"), share: true, series: ofGpus("use") },
    { title: t("GPU memory"), unit: t("GiB"), series: ofGpus("memory", 1 / GIB), ...(gpus.length > 0 ? limit(t("of a GPU"), `gpu${gpus[0]}_memory_total`, 1 / GIB) : {}) },
    { title: t("GPU power"), unit: t("W"), series: ofGpus("power") },
  ];
  return charts.filter((chart) => chart.series.length > 0);
}
