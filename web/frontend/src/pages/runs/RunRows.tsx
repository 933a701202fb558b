import { Badge, Checkbox, Group, Table, Text, UnstyledButton } from "@mantine/core";
import { IconArrowDown, IconArrowUp } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";

import { api, body } from "../../api/client";
import { formatNumber } from "../../components/chartData";
import { Wide } from "../../components/Wide";
import { duration } from "../../format/duration";
import { moment } from "../../format/moment";
import { NONE } from "../../format/none";
import { t } from "../../i18n";
import { figure, title, type RunRow } from "./format";
import { RunStatus } from "./RunStatus";

type Direction = "up" | "down";

interface RunRowsProps {
  runs: RunRow[];
  columns: string[];
  chosen: string[];
  toggle: (ids: string[], on: boolean) => void;
  sort: string;
  direction: Direction;
  onSort: (name: string, direction: Direction) => void;
}

/** The list itself: what is chosen is compared or noted, a head sorts. */
export function RunRows({ runs, columns, chosen, toggle, sort, direction, onSort }: RunRowsProps) {
  const { data: alerts } = useQuery({ queryKey: ["runs", "alerts", null], queryFn: () => body(api.GET("/api/runs/alerts")), refetchInterval: 15_000 });
  const rung = new Set(alerts?.alerts.filter((one) => one.seen_by === null).map((one) => one.run));
  const head = (name: string, label: ReactNode, wide = false) => (
    <Table.Th scope="col" key={name} {...(wide ? { visibleFrom: "sm" } : {})} aria-sort={sort === name ? (direction === "up" ? "ascending" : "descending") : "none"}>
      <UnstyledButton fz="inherit" fw="inherit" onClick={() => onSort(name, sort === name && direction === "down" ? "up" : "down")} style={{ whiteSpace: "nowrap" }}>
        {label}
        {sort === name && (direction === "up" ? <IconArrowUp size={12} /> : <IconArrowDown size={12} />)}
      </UnstyledButton>
    </Table.Th>
  );
  const all = runs.map((run) => run.id);
  const some = all.some((id) => chosen.includes(id));
  return (
    <Wide label={t("Runs, table")}>
      <div className="panel" style={{ padding: 0 }}>
        <Table highlightOnHover aria-label={t("Runs")}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={36}>
                <Checkbox
                  size="xs"
                  aria-label={t("Choose all of this page")}
                  checked={all.every((id) => chosen.includes(id))}
                  indeterminate={some && !all.every((id) => chosen.includes(id))}
                  onChange={(event) => toggle(all, event.currentTarget.checked)}
                />
              </Table.Th>
              {head("name", t("Run"))}
              {head("kind", t("Kind"), true)}
              {head("status", t("Status"))}
              <Table.Th scope="col" visibleFrom="sm">
                {t("Figure")}
              </Table.Th>
              {columns.map((name) => head(name, <span title={name}>{shortName(name)}</span>))}
              {head("started", t("Started"), true)}
              {head("took", t("Took"), true)}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {runs.map((run) => (
              <Row key={run.id} run={run} columns={columns} chosen={chosen.includes(run.id)} toggle={toggle} rung={rung.has(run.id)} />
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </Wide>
  );
}

/** The last two parts tell most of a name; all of it is its title. */
function shortName(name: string): string {
  const parts = name.split(".");
  return parts.length > 3 ? `…${parts.slice(-2).join(".")}` : parts.slice(1).join(".");
}

interface RowProps {
  run: RunRow;
  columns: string[];
  chosen: boolean;
  toggle: (ids: string[], on: boolean) => void;
  rung: boolean;
}

function Row({ run, columns, chosen, toggle, rung }: RowProps) {
  const summary = [run.status !== "done" && run.step !== null ? t("step {{step}}", { step: run.step }) : "", figure(run.figure)].filter(Boolean).join(", ");
  return (
    <Table.Tr opacity={run.archived ? 0.7 : 1}>
      <Table.Td>
        <Checkbox size="xs" aria-label={t("Choose {{run}}", { run: run.id })} checked={chosen} onChange={(event) => toggle([run.id], event.currentTarget.checked)} />
      </Table.Td>
      <Table.Td style={{ overflowWrap: "anywhere" }} miw={170}>
        <Group gap={4}>
          <Text size="sm" fw={500} component={Link} to={`/runs/${run.id}`} c="var(--mantine-color-anchor)">
            {title(run)}
          </Text>
          <RunMarks run={run} rung={rung} />
        </Group>
        <Text size="xs" className="dim" ff="monospace">
          {run.id}
        </Text>
        {run.note !== "" && (
          <Text size="xs" lineClamp={1} title={run.note}>
            {run.note}
          </Text>
        )}
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
      {columns.map((name) => {
        const value = run.values[name];
        return (
          <Table.Td key={name} maw={220} style={{ overflowWrap: "anywhere" }}>
            {typeof value === "number" ? formatNumber(value) : (value ?? NONE)}
          </Table.Td>
        );
      })}
      <Table.Td visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
        {moment(run.started)}
      </Table.Td>
      <Table.Td visibleFrom="sm" style={{ whiteSpace: "nowrap" }}>
        {duration(run.seconds)}
      </Table.Td>
    </Table.Tr>
  );
}

/** Tags, and what else is to be known of a run at a glance. */
export function RunMarks({ run, rung = false }: { run: RunRow; rung?: boolean }) {
  const mark = (text: string, color: string) => (
    <Badge key={text} size="xs" variant="light" color={color} tt="none" radius="sm" style={{ flexShrink: 0 }}>
      {text}
    </Badge>
  );
  return (
    <>
      {rung && mark(t("alert"), "red")}
      {run.archived && mark(t("archived"), "gray")}
      {run.removed !== null && mark(t("files removed"), "gray")}
      {run.tags.map((tag) => mark(tag, "indigo"))}
    </>
  );
}
