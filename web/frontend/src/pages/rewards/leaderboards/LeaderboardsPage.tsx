import { Anchor, Stack, Table, Text, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty, Failure, Waiting } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import { short } from "../format";

type Board = Schemas["BenchmarkBoard"];
type Entry = Schemas["BenchmarkEntry"];

export function useLeaderboards() {
  return useQuery({ queryKey: ["rewards", "leaderboards"], queryFn: () => body(api.GET("/api/rewards/leaderboards")) });
}

/** Models down, benchmarks across. */
export function LeaderboardsPage() {
  const { data, failureReason: error } = useLeaderboards();
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.boards.length === 0)
    return (
      <Empty title={t("Nothing has been evaluated on a benchmark")}>
        {t("It takes a reward model, and a benchmark's file on the server.")}
        <StartHere actions={[["/jobs/new/evaluate", t("Evaluate a model")]]} />
      </Empty>
    );
  return <Overview boards={data.boards} />;
}

function Overview({ boards }: { boards: Board[] }) {
  const [search, setSearch] = useSearchParams();
  const sort = search.get("sort") ?? boards[0]!.bench;
  const models = rowsOf(boards);
  const valueOf = (row: Row) => {
    const entry = row.cells.get(sort);
    return entry?.ranked ? (entry.headline?.value ?? -Infinity) : -Infinity;
  };
  models.sort((one, other) => valueOf(other) - valueOf(one) || one.model.localeCompare(other.model));
  return (
    <Stack gap="xs">
      <Wide label={t("Models and benchmarks")}>
        <Table withTableBorder highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Model")}</Table.Th>
              {boards.map((board) => (
                <Table.Th
                  key={board.bench}
                  ta="right"
                  aria-sort={board.bench === sort ? "descending" : "none"}
                  style={{ verticalAlign: "bottom" }}
                >
                  <UnstyledButton
                    fz="sm"
                    fw={board.bench === sort ? 700 : 500}
                    onClick={() => setSearch({ sort: board.bench })}
                    aria-label={t("Sort by {{board}}", { board: board.title })}
                  >
                    {board.title}
                    {board.bench === sort ? " ↓" : ""}
                  </UnstyledButton>
                  <br />
                  <Anchor component={Link} to={board.bench} fz="xs" fw={400}>{t("parts")}</Anchor>
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {models.map((row) => (
              <Table.Tr key={row.key}>
                <Table.Th scope="row" fw={500}>
                  {row.model}{" "}
                  <Text span size="xs" className="dim">
                    {row.version === null ? t("recorded scores") : short(row.version)}
                  </Text>
                </Table.Th>
                {boards.map((board) => (
                  <Table.Td key={board.bench} ta="right">
                    <Cell entry={row.cells.get(board.bench)} board={board} />
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {t("The newest result of each model under the benchmark's own tie rule, with its 95 % interval. Only results on the same items can be compared: where they differ, their mark says so. A benchmark's page has its parts and other tie rules.")}
      </Text>
    </Stack>
  );
}

interface Row {
  key: string;
  model: string;
  version: string | null;
  cells: Map<string, Entry>;
}

function rowsOf(boards: Board[]): Row[] {
  const rows = new Map<string, Row>();
  for (const board of boards)
    for (const entry of board.entries) {
      if (entry.ties !== "official") continue;
      const key = `${entry.model} ${entry.version ?? ""}`;
      const row = rows.get(key) ?? { key, model: entry.model, version: entry.version, cells: new Map<string, Entry>() };
      if (!row.cells.has(board.bench)) row.cells.set(board.bench, entry); // entries come newest first
      rows.set(key, row);
    }
  return [...rows.values()];
}

function Cell({ entry, board }: { entry: Entry | undefined; board: Board }) {
  if (entry === undefined)
    return (
      <Text size="xs" className="dim">{t("not run")}</Text>
    );
  const most = Math.max(...board.entries.map(({ items }) => items));
  const { headline } = entry;
  const mixed = new Set(board.entries.map(({ data }) => data)).size > 1;
  return (
    <div className="rewards-number">
      <Text size="sm" fw={600}>
        {figure(headline?.value)}
      </Text>
      <Text size="xs" className="dim">
        {!entry.ranked && (
          <Text span size="xs" c="var(--mantine-color-orange-text)">
            {t("not ranked: {{warnings}}", { warnings: entry.warnings.join("; ") })}
            {entry.failures_wrong !== null && t("; {{failures_wrong}} with failed items as wrong", { failures_wrong: figure(entry.failures_wrong) })}
            <br />
          </Text>
        )}
        {entry.ranked && entry.warnings.length > 0 && (
          <Text span size="xs" c="var(--mantine-color-orange-text)">
            {entry.warnings.join("; ")}
            <br />
          </Text>
        )}
        {headline?.low == null ? t("no interval") : interval(headline.low, headline.high)}
        {headline != null && headline.name !== "overall" && (
          <>
            <br />
            {headline.name}
          </>
        )}
        {mixed && (
          <>
            <br />
            {t("items {{data}}", { data: entry.data ?? t("unknown") })}
          </>
        )}
        {(entry.items < most || entry.failed > 0) && (
          <>
            <br />
            {entry.items < most ? t("{{items}} of {{most}} items", { items: count(entry.items), most: count(most) }) : ""}
            {entry.items < most && entry.failed > 0 ? ", " : ""}
            {entry.failed > 0 ? t("{{failed}} failed", { failed: count(entry.failed) }) : ""}
          </>
        )}
      </Text>
    </div>
  );
}
