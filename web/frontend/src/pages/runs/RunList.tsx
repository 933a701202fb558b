import { Alert, Button, Checkbox, Group, HoverCard, Pagination, Select, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconDownload, IconHelp } from "@tabler/icons-react";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { api, body } from "../../api/client";
import { useAllows } from "../../api/session";
import { StartHere } from "../../components/StartHere";
import { Empty, Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";
import { StartMenu } from "../jobs/StartMenu";
import { rememberedColumns, RunColumnsMenu } from "./RunColumns";
import { CopyLink } from "./curveView";
import { goesOn } from "./format";
import { NoteRuns } from "./NoteRuns";
import { RunRows } from "./RunRows";
import { statusName } from "./RunStatus";

const PAGE = 50;
const STATUSES = ["running", "done", "failed", "interrupted"] as const;
type Stored = (typeof STATUSES)[number];

/** Every run of the workspace, newest first unless asked otherwise. What is shown is in the address. */
export function RunList() {
  const [address, setAddress] = useSearchParams();
  const [chosen, setChosen] = useState<string[]>([]);
  const navigate = useNavigate();
  const curates = useAllows("curate");
  const kind = address.get("kind");
  const status = STATUSES.find((one) => one === address.get("status")) ?? null;
  const text = address.get("text") ?? "";
  const archived = address.get("archived") === "1";
  const sort = address.get("sort") ?? "started";
  const direction = address.get("direction") === "up" ? "up" : "down";
  const columns = address.has("columns") ? address.getAll("columns").filter(Boolean) : rememberedColumns();
  const page = Math.max(1, Number(address.get("page")) || 1);
  const changeAll = (changes: Record<string, string | string[] | null>) =>
    setAddress(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          after.delete(name);
          for (const one of Array.isArray(value) ? value : value ? [value] : []) after.append(name, one);
        }
        if (!("page" in changes)) after.delete("page");
        return after;
      },
      { replace: "text" in changes },
    );
  const change = (name: string, value: string | null) => changeAll({ [name]: value });
  const search = useDebouncedCallback((value: string) => change("text", value), 250);
  const filters = {
    ...(kind ? { kind } : {}),
    ...(status ? { status: status as Stored } : {}),
    ...(text ? { text } : {}),
    ...(archived ? { archived } : {}),
    sort,
    direction: direction as "up" | "down",
    column: columns,
  };
  const query = { ...filters, limit: PAGE, offset: (page - 1) * PAGE };
  const { data, failureReason: error } = useQuery({
    queryKey: ["runs", query],
    queryFn: () => body(api.GET("/api/runs", { params: { query } })),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.held != null || state.data?.runs.some((run) => goesOn(run.status)) ? 4000 : 15_000),
  });
  const toggle = (ids: string[], on: boolean) => setChosen((now) => (on ? [...new Set([...now, ...ids])] : now.filter((one) => !ids.includes(one))));
  return (
    <Stack gap="sm">
      <Group justify="space-between">
        <Title order={1}>{t("Runs")}</Title>
        <Group gap="xs">
          <StartMenu areas={["rewards", "policies"]} />
          <Button variant="subtle" component={Link} to="/runs/alerts">
            {t("Alerts")}
          </Button>
          <Button variant="light" disabled={chosen.length < 2} onClick={() => void navigate(`/runs/compare?${chosen.map((id) => `run=${id}`).join("&")}`)}>
            {chosen.length < 2 ? t("Choose runs to compare") : t("Compare {{count}} runs", { count: chosen.length })}
          </Button>
        </Group>
      </Group>
      <Group gap="xs" align="end">
        <TextInput
          label={
            <Group gap={4} component="span">
              {t("Search")}
              <SearchHelp />
            </Group>
          }
          placeholder={t("name, tag, config.lr<1e-4")}
          flex="1 1 260px"
          maw={520}
          defaultValue={text}
          onChange={(event) => search(event.currentTarget.value)}
        />
        <Select
          label={t("Kind")}
          placeholder={t("all")}
          clearable
          w={150}
          value={kind}
          onChange={(value) => change("kind", value)}
          data={(data?.kinds ?? []).map((one) => ({ value: one.kind, label: `${one.kind} (${one.runs})` }))}
        />
        <Select label={t("Status")} placeholder={t("all")} clearable w={130} value={status} onChange={(value) => change("status", value)} data={STATUSES.map((one) => ({ value: one, label: statusName(one) }))} />
        <RunColumnsMenu columns={columns} onChange={(names) => changeAll({ columns: names.length === 0 ? [""] : names })} />
        <Checkbox size="xs" mb={9} label={t("Archived too")} checked={archived} onChange={(event) => change("archived", event.currentTarget.checked ? "1" : null)} />
      </Group>
      <Group gap="xs">
        {data !== undefined && (
          <Text size="sm" className="dim" role="status">
            {t("{{count}} runs", { count: data.total })}
          </Text>
        )}
        <Button component="a" href={`/api/runs/table.csv?${parametersOf(filters)}`} download variant="subtle" size="compact-sm" color="gray" leftSection={<IconDownload size={14} />}>
          {t("CSV")}
        </Button>
        <CopyLink />
        {chosen.length > 0 && curates && <NoteRuns runs={chosen} done={() => setChosen([])} />}
        {chosen.length > 0 && (
          <Button variant="subtle" size="compact-sm" color="gray" onClick={() => setChosen([])}>
            {t("Choose none")}
          </Button>
        )}
      </Group>
      {data?.held != null && (
        <Alert color="yellow" title={t("From the runs' folders alone")} role="status">
          {data.held}. {t("Names, notes, results and the order come back with the store; trying again by itself.")}
        </Alert>
      )}
      {error !== null && <Failure error={error} />}
      {data === undefined ? (
        error === null && <Waiting />
      ) : data.runs.length === 0 ? (
        <NoRuns filtered={kind !== null || status !== null || text !== ""} />
      ) : (
        <RunRows
          runs={data.runs}
          columns={data.held == null ? columns : []}
          chosen={chosen}
          toggle={toggle}
          sort={sort}
          direction={direction}
          onSort={(name, way) => changeAll({ sort: name === "started" && way === "down" ? null : name, direction: way === "up" ? "up" : null })}
        />
      )}
      {data !== undefined && data.total > PAGE && (
        <Pagination
          total={Math.ceil(data.total / PAGE)}
          value={page}
          onChange={(value) => change("page", value === 1 ? null : String(value))}
          size="sm"
          getControlProps={(control) => ({ "aria-label": { first: t("first page"), last: t("last page"), next: t("next page"), previous: t("previous page") }[control] })}
        />
      )}
    </Stack>
  );
}

function parametersOf(filters: Record<string, string | boolean | string[]>): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(filters)) for (const one of [value].flat()) parameters.append(name, String(one));
  return parameters.toString();
}

/** What can be typed, by example. */
function SearchHelp() {
  const examples: [string, string][] = [
    ["helpful", t("part of the name, id, group, a tag or the note")],
    ["-helpful", t("without it")],
    ["config.learning_rate<1e-4", t("a setting: <, <=, >, >=, =, !=, ~ (contains)")],
    ["metrics.accuracy>=0.8", t("a figure, the same way")],
    ["tag:best", t("with this tag; tags with spaces in quotes")],
    ["status:failed", t("runs that failed; all that is typed must hold")],
  ];
  return (
    <HoverCard width={420} position="bottom-start" withinPortal>
      <HoverCard.Target>
        <IconHelp size={14} role="img" tabIndex={0} aria-label={t("How to search")} />
      </HoverCard.Target>
      <HoverCard.Dropdown>
        <Table>
          <Table.Tbody>
            {examples.map(([line, meaning]) => (
              <Table.Tr key={line}>
                <Table.Td ff="monospace" fz="xs" style={{ whiteSpace: "nowrap" }}>
                  {line}
                </Table.Td>
                <Table.Td fz="xs">{meaning}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </HoverCard.Dropdown>
    </HoverCard>
  );
}

function NoRuns({ filtered }: { filtered: boolean }) {
  if (filtered) return <Empty title={t("No such run")}>{t("Take a filter away.")}</Empty>;
  return (
    <Empty title={t("Nothing has run yet")}>
      <StartHere
        actions={[
          ["/jobs/new/train", t("Train a reward model")],
          ["/jobs/new/policy", t("Train a policy")],
        ]}
      />
    </Empty>
  );
}

