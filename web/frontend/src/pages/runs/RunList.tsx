import { Alert, Button, Checkbox, Group, Pagination, Select, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { Empty, Failure, Waiting } from "../../components/States";
import { counted } from "../../format/count";
import { duration } from "../../format/duration";
import { moment } from "../../format/moment";
import { Command } from "./Command";
import { figure, goesOn, title, type RunRow } from "./format";
import { RunStatus } from "./RunStatus";

const PAGE = 50;
const MOST_COMPARED = 4;
const STATUSES = ["running", "done", "failed", "interrupted"] as const;
type Stored = (typeof STATUSES)[number];

/** Every run of the workspace, newest first. What is shown is in the address. */
export function RunList() {
  const [address, setAddress] = useSearchParams();
  const [chosen, setChosen] = useState<string[]>([]);
  const navigate = useNavigate();
  const kind = address.get("kind");
  const status = STATUSES.find((one) => one === address.get("status")) ?? null;
  const text = address.get("text") ?? "";
  const page = Math.max(1, Number(address.get("page")) || 1);
  const change = (name: string, value: string | null) =>
    setAddress(
      (before) => {
        const after = new URLSearchParams(before);
        if (value) after.set(name, value);
        else after.delete(name);
        if (name !== "page") after.delete("page");
        return after;
      },
      { replace: name !== "page" },
    );
  const search = useDebouncedCallback((value: string) => change("text", value), 250);
  const query = { ...(kind ? { kind } : {}), ...(status ? { status: status as Stored } : {}), ...(text ? { text } : {}), limit: PAGE, offset: (page - 1) * PAGE };
  const { data, failureReason: error } = useQuery({
    queryKey: ["runs", query],
    queryFn: () => body(api.GET("/api/runs", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.held != null || state.data?.runs.some((run) => goesOn(run.status)) ? 4000 : 15_000),
  });
  const toggle = (id: string) => setChosen((now) => (now.includes(id) ? now.filter((one) => one !== id) : [...now, id]));
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>Runs</Title>
        <Button
          variant="light"
          disabled={chosen.length < 2}
          onClick={() => void navigate(`/runs/compare?${chosen.map((id) => `run=${id}`).join("&")}`)}
        >
          {chosen.length < 2 ? "Choose runs to compare" : `Compare ${chosen.length} runs`}
        </Button>
      </Group>
      <Group gap="xs" align="end">
        <Select
          label="Kind"
          placeholder="all"
          clearable
          w={170}
          value={kind}
          onChange={(value) => change("kind", value)}
          data={(data?.kinds ?? []).map((one) => ({ value: one.kind, label: `${one.kind} (${one.runs})` }))}
        />
        <Select label="Status" placeholder="all" clearable w={130} value={status} onChange={(value) => change("status", value)} data={[...STATUSES]} />
        <TextInput label="Name or id" w={200} defaultValue={text} onChange={(event) => search(event.currentTarget.value)} />
        {data !== undefined && (
          <Text size="sm" className="dim" role="status">
            {counted(data.total, "run")}
          </Text>
        )}
      </Group>
      {data?.held != null && (
        <Alert color="yellow" title="From the runs' folders alone" role="status">
          {data.held}. Names and results come back with the store; trying again by itself.
        </Alert>
      )}
      {error !== null && <Failure error={error} />}
      {data === undefined ? error === null && <Waiting /> : <Rows data={data} chosen={chosen} toggle={toggle} filtered={kind !== null || status !== null || text !== ""} />}
      {data !== undefined && data.total > PAGE && (
        <Pagination total={Math.ceil(data.total / PAGE)} value={page} onChange={(value) => change("page", value === 1 ? null : String(value))} size="sm" getControlProps={(control) => ({ "aria-label": `${control} page` })} />
      )}
    </Stack>
  );
}

interface RowsProps {
  data: Schemas["RunList"];
  chosen: string[];
  toggle: (id: string) => void;
  filtered: boolean;
}

function Rows({ data, chosen, toggle, filtered }: RowsProps) {
  if (data.runs.length === 0 && filtered) return <Empty title="No such run">Take a filter away.</Empty>;
  if (data.runs.length === 0)
    return (
      <Empty title="Nothing has run yet">
        <Command line="assay train bt --data pairs.jsonl --base tiny" />
        <Command line="assay rl --reward verifier --policy tiny" />
      </Empty>
    );
  return (
    <div className="panel" style={{ padding: 0, overflow: "hidden" }}>
      <Table highlightOnHover aria-label="Runs">
        <Table.Thead>
          <Table.Tr>
            <Table.Th w={36} aria-label="Chosen to compare" />
            <Table.Th scope="col">Run</Table.Th>
            <Table.Th scope="col" visibleFrom="sm">
              Kind
            </Table.Th>
            <Table.Th scope="col">Status</Table.Th>
            <Table.Th scope="col" visibleFrom="sm">
              Figure
            </Table.Th>
            <Table.Th scope="col" visibleFrom="sm">
              Started
            </Table.Th>
            <Table.Th scope="col" visibleFrom="sm">
              Took
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {data.runs.map((run) => (
            <Row key={run.id} run={run} chosen={chosen.includes(run.id)} full={chosen.length >= MOST_COMPARED} toggle={toggle} />
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

function Row({ run, chosen, full, toggle }: { run: RunRow; chosen: boolean; full: boolean; toggle: (id: string) => void }) {
  const summary = [run.status !== "done" && run.step !== null ? `step ${run.step}` : "", figure(run.figure)].filter(Boolean).join(", ");
  const curves = run.kind === "train" || run.kind === "rl";
  return (
    <Table.Tr>
      <Table.Td>
        {curves && <Checkbox size="xs" aria-label={`Compare ${run.id}`} checked={chosen} disabled={full && !chosen} onChange={() => toggle(run.id)} />}
      </Table.Td>
      <Table.Td style={{ overflowWrap: "anywhere" }}>
        <Text size="sm" fw={500} component={Link} to={`/runs/${run.id}`} c="var(--mantine-color-anchor)">
          {title(run)}
        </Text>
        <Text size="xs" className="dim" ff="monospace">
          {run.id}
        </Text>
        <Text size="xs" className="dim" hiddenFrom="sm">
          {[run.kind, summary, duration(run.seconds)].filter(Boolean).join(", ")}
        </Text>
      </Table.Td>
      <Table.Td visibleFrom="sm">{run.kind}</Table.Td>
      <Table.Td>
        <RunStatus status={run.status} warnings={run.warnings} />
      </Table.Td>
      <Table.Td visibleFrom="sm" maw={320}>
        {run.status === "failed" && run.error !== null ? (
          <Text size="sm" lineClamp={2} c="var(--mantine-color-red-text)">
            {run.error}
          </Text>
        ) : (
          <>
            {summary}
            {run.warnings.map((warning) => (
              <Text key={warning} size="xs" c="var(--mantine-color-orange-text)">
                {warning}
              </Text>
            ))}
          </>
        )}
      </Table.Td>
      <Table.Td visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
        {moment(run.started)}
      </Table.Td>
      <Table.Td visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
        {duration(run.seconds)}
      </Table.Td>
    </Table.Tr>
  );
}
