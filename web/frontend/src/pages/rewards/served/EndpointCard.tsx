import { Anchor, Badge, Button, Code, Group, Loader, ScrollArea, Select, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconArrowsExchange, IconFlask, IconPlayerPlay, IconPlayerStop } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { useAllows } from "../../../api/session";
import { AskFirst } from "../../../components/AskFirst";
import { Failure } from "../../../components/States";
import { count } from "../../../format/count";
import { moment } from "../../../format/moment";
import { t } from "../../../i18n";
import { Command } from "../../../components/Command";
import { short } from "../format";
import { changesSoon, colourOf, isOver, stateInWords, type Endpoint } from "./states";

/** One served model: how it is, where it answers, and what can be done with it. */
export function EndpointCard({ endpoint, models }: { endpoint: Endpoint; models: Schemas["StoredModel"][] }) {
  const curator = useAllows("curate");
  const [logged, log] = useDisclosure();
  const title = endpoint.model === endpoint.name ? endpoint.name : t("{{name}}: model {{model}}", { name: endpoint.name, model: endpoint.model });
  return (
    <Stack className="panel" gap={6} component="section" aria-label={t("Served as {{name}}", { name: endpoint.name })}>
      <Group gap="xs">
        <Text fw={600} style={{ overflowWrap: "anywhere" }}>
          {title}
        </Text>
        <Badge color={colourOf(endpoint.state)} variant="light" role="status">
          {stateInWords(endpoint.state)}
        </Badge>
        {changesSoon(endpoint) && <Loader size="xs" aria-hidden />}
        {endpoint.version !== null && (
          <Text size="xs" className="dim">
            {t("version {{version}}", { version: short(endpoint.version) })}
          </Text>
        )}
        {endpoint.waiting !== null && endpoint.waiting > 0 && <Text size="xs">{t("{{number}} items are being scored", { number: count(endpoint.waiting) })}</Text>}
      </Group>
      {endpoint.why !== null && (
        <Text size="sm" c={endpoint.state === "failed" || endpoint.state === "unreachable" ? "var(--mantine-color-error)" : undefined} style={{ overflowWrap: "anywhere" }}>
          {endpoint.why}
        </Text>
      )}
      {endpoint.url !== null && !isOver(endpoint) && <Command line={endpoint.url} />}
      <Swapped swap={endpoint.swap} over={isOver(endpoint)} />
      <Text size="xs" className="dim">
        {t("Started {{at}} by {{by}}", { at: moment(endpoint.started), by: endpoint.by })}
        {endpoint.ended !== null && `, ${t("ended {{at}}", { at: moment(endpoint.ended) })}`}
        {endpoint.network && `, ${t("other machines may reach it")}`}
      </Text>
      <Group gap="xs" align="end">
        {endpoint.state === "ready" && (
          <Button component={Link} to="/rewards/playground" size="compact-sm" variant="light" leftSection={<IconFlask size={14} />}>
            {t("Try it in the playground")}
          </Button>
        )}
        {curator && endpoint.state === "ready" && <Swap endpoint={endpoint} models={models} />}
        {curator && !isOver(endpoint) && <Stop endpoint={endpoint} />}
        {curator && isOver(endpoint) && <Again endpoint={endpoint} />}
        {curator && (
          <Anchor component="button" size="sm" onClick={log.toggle} aria-expanded={logged}>
            {logged ? t("Hide the log") : t("Show the log")}
          </Anchor>
        )}
      </Group>
      {logged && <Log endpoint={endpoint} />}
    </Stack>
  );
}

function Swapped({ swap, over }: { swap: Endpoint["swap"]; over: boolean }) {
  if (swap === null || over) return null;
  const named = { model: swap.model, by: swap.by, at: moment(swap.at) };
  const words = {
    loading: t("{{model}} is being loaded; the present model answers until it is there.", named),
    done: t("Took the place of another model {{at}}, by {{by}}.", named),
    failed: t("{{model}} could not take its place: {{why}}", { ...named, why: swap.why ?? "" }),
    unknown: t("What became of loading {{model}} is not known: {{why}}.", { ...named, why: swap.why ?? "" }),
  };
  return (
    <Text size="sm" c={swap.state === "failed" ? "var(--mantine-color-error)" : undefined}>
      {words[swap.state]}
    </Text>
  );
}

function Swap({ endpoint, models }: { endpoint: Endpoint; models: Schemas["StoredModel"][] }) {
  const queries = useQueryClient();
  const [opened, { open, close }] = useDisclosure();
  const [model, setModel] = useState<string | null>(null);
  const swap = useMutation({
    mutationFn: (to: string) => api.POST("/api/rewards/endpoints/{endpoint_id}/swap", { params: { path: { endpoint_id: endpoint.id } }, body: { model: to } }),
    onSuccess: async () => {
      close();
      await queries.invalidateQueries({ queryKey: ["rewards"] });
    },
  });
  const others = models.map((one) => one.name).filter((name) => name !== endpoint.model);
  if (others.length === 0 || endpoint.swap?.state === "loading") return null;
  if (!opened)
    return (
      <Button size="compact-sm" variant="default" leftSection={<IconArrowsExchange size={14} />} onClick={open}>
        {t("Another model in its place")}
      </Button>
    );
  return (
    <Group gap="xs" align="end">
      <Select size="xs" label={t("In its place")} data={others} value={model} onChange={setModel} searchable w={200} />
      <Button size="xs" disabled={model === null} loading={swap.isPending} onClick={() => model !== null && swap.mutate(model)}>
        {t("Swap")}
      </Button>
      <Button size="xs" variant="default" onClick={close}>
        {t("Leave it")}
      </Button>
      {swap.error !== null && <Failure error={swap.error} />}
    </Group>
  );
}

function Stop({ endpoint }: { endpoint: Endpoint }) {
  const queries = useQueryClient();
  const [opened, { open, close }] = useDisclosure();
  const stop = useMutation({
    mutationFn: () => api.POST("/api/rewards/endpoints/{endpoint_id}/stop", { params: { path: { endpoint_id: endpoint.id } } }),
    onSuccess: close,
    onSettled: () => queries.invalidateQueries({ queryKey: ["rewards"] }),
  });
  const atOnce = endpoint.state === "stopping";
  const act = atOnce ? t("End at once") : t("Stop serving");
  return (
    <>
      <Button size="compact-sm" color="red" variant="light" leftSection={<IconPlayerStop size={14} />} onClick={open}>
        {act}
      </Button>
      <AskFirst
        opened={opened}
        onClose={close}
        title={t("Stop serving {{name}}?", { name: endpoint.name })}
        act={act}
        keep={t("Let it serve")}
        pending={stop.isPending}
        error={stop.error}
        onAct={() => stop.mutate()}
      >
        {atOnce
          ? t("It is still answering what it was asked. Ended at once, those requests fail.")
          : t("It answers what it was asked already; then trainers and the playground get no more scores from it. It can be served again.")}
      </AskFirst>
    </>
  );
}

function Again({ endpoint }: { endpoint: Endpoint }) {
  const queries = useQueryClient();
  const start = useMutation({
    mutationFn: () =>
      api.POST("/api/rewards/endpoints", {
        body: { model: endpoint.model, name: endpoint.name, port: endpoint.port, network: endpoint.network, device: "auto", dtype: "float32" },
      }),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["rewards"] }),
  });
  return (
    <>
      <Button size="compact-sm" variant="default" leftSection={<IconPlayerPlay size={14} />} loading={start.isPending} onClick={() => start.mutate()}>
        {t("Serve it again")}
      </Button>
      {start.error !== null && <Failure error={start.error} />}
    </>
  );
}

function Log({ endpoint }: { endpoint: Endpoint }) {
  const { data, failureReason: error } = useQuery({
    queryKey: ["rewards", "endpoint-log", endpoint.id],
    queryFn: () => body(api.GET("/api/rewards/endpoints/{endpoint_id}/log", { params: { path: { endpoint_id: endpoint.id } } })),
    refetchInterval: isOver(endpoint) ? false : 3_000,
  });
  if (data === undefined) return error === null ? null : <Failure error={error} />;
  return (
    <Stack gap={4}>
      <Command line={endpoint.command} />
      <ScrollArea.Autosize mah={260} type="auto" viewportProps={{ tabIndex: 0, "aria-label": t("Log of {{name}}", { name: endpoint.name }) }}>
        <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
          {data.text.trim() || t("It has printed nothing yet.")}
        </Code>
      </ScrollArea.Autosize>
    </Stack>
  );
}
