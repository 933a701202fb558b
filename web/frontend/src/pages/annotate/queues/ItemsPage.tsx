import { Anchor, Button, Checkbox, Group, Modal, Select, Stack, Switch, TagsInput, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useRef, useState, type KeyboardEvent } from "react";
import { Link, useParams, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { t } from "../../../i18n";
import { answerInWords } from "../../data/comparison/Judgments";
import { QueueArea } from "./QueueArea";
import { useEdit, useSettings } from "./settings/useSettings";

type Row = Schemas["ItemRow"];
type State = Row["states"][number];

const PAGE = 100;
const STATES: State[] = ["open", "done", "conflict", "noted", "check", "removed"];

function stateInWords(state: State): string {
  return { open: t("open"), done: t("done"), conflict: t("no majority"), noted: t("with a note"), check: t("known answer"), removed: t("removed") }[state];
}

/** Many items of a queue at once: chosen by mouse or keyboard, then removed, assigned, decided or sent on. */
export function ItemsPage() {
  const { queue = "" } = useParams();
  const [search, setSearch] = useSearchParams();
  const state = (search.get("state") ?? null) as State | null;
  const who = search.get("who") ?? "";
  const start = Number(search.get("start") ?? 0) || 0;
  const [typed, setTyped] = useState(search.get("text") ?? "");
  const [text] = useDebouncedValue(typed, 300);
  const query = { state, who, text, start, most: PAGE };
  const { data, failureReason: error } = useQuery({
    queryKey: ["queue-items", queue, query],
    queryFn: () => body(api.GET("/api/queues/{queue}/items", { params: { path: { queue }, query } })),
    placeholderData: keepPreviousData,
  });
  const [chosen, setChosen] = useState<ReadonlySet<number>>(new Set());
  const set = (name: string, value: string | null) => {
    const next = new URLSearchParams(search);
    if (value === null || value === "") next.delete(name);
    else next.set(name, value);
    if (name !== "start") next.delete("start");
    setSearch(next, { replace: name === "text" });
  };
  return (
    <QueueArea>
      <Group align="end" gap="sm">
        <Select label={t("State")} placeholder={t("All")} clearable data={STATES.map((value) => ({ value, label: stateInWords(value) }))} value={state} onChange={(value) => set("state", value)} w={170} />
        <TextInput label={t("Person")} description={t("voted on it, or it is theirs")} value={who} onChange={(event) => set("who", event.currentTarget.value)} w={190} />
        <TextInput label={t("Text")} value={typed} onChange={(event) => setTyped(event.currentTarget.value)} w={220} />
      </Group>
      {data === undefined ? (
        error ? <Failure error={error} /> : <Waiting />
      ) : data.total === 0 ? (
        <Empty title={t("No item matches")}>{t("Choose another state, person or text.")}</Empty>
      ) : (
        <>
          <Actions queue={queue} chosen={[...chosen]} clear={() => setChosen(new Set())} />
          <ItemTable queue={queue} rows={data.rows} chosen={chosen} choose={setChosen} />
          <Group justify="space-between">
            <Text size="sm" className="dim">
              {t("Items {{from}} to {{to}} of {{total}}", { from: start + 1, to: start + data.rows.length, total: data.total })}
            </Text>
            <Group gap="xs">
              <Button variant="default" disabled={start === 0} onClick={() => set("start", String(Math.max(0, start - PAGE)))}>
                {t("Previous page")}
              </Button>
              <Button variant="default" disabled={start + PAGE >= data.total} onClick={() => set("start", String(start + PAGE))}>
                {t("Next page")}
              </Button>
            </Group>
          </Group>
        </>
      )}
    </QueueArea>
  );
}

interface TableProps {
  queue: string;
  rows: Row[];
  chosen: ReadonlySet<number>;
  choose: (chosen: ReadonlySet<number>) => void;
}

/** Arrows or j and k move, Space chooses, Shift with an arrow chooses on the way, Enter opens the item. */
export function ItemTable({ queue, rows, chosen, choose }: TableProps) {
  const table = useRef<HTMLTableSectionElement>(null);
  const [current, setCurrent] = useState(0);
  const all = rows.length > 0 && rows.every(({ item }) => chosen.has(item));
  const turn = (items: number[], on: boolean) => {
    const next = new Set(chosen);
    for (const item of items)
      if (on) next.add(item);
      else next.delete(item);
    choose(next);
  };
  const go = (to: number, choosing: boolean) => {
    const row = rows[to];
    if (row === undefined) return;
    setCurrent(to);
    if (choosing) turn([rows[current]!.item, row.item], true);
    table.current?.querySelectorAll<HTMLElement>("tr")[to]?.focus();
  };
  const press = (event: KeyboardEvent<HTMLTableSectionElement>) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = rows[current];
    const onRow = event.target instanceof HTMLTableRowElement ? event.target : null;
    if (onRow === null && (event.code === "Space" || event.code === "Enter")) return;
    if (event.code === "ArrowDown" || event.code === "KeyJ") go(current + 1, event.shiftKey);
    else if (event.code === "ArrowUp" || event.code === "KeyK") go(current - 1, event.shiftKey);
    else if (event.code === "Space" && row !== undefined) turn([row.item], !chosen.has(row.item));
    else if (event.code === "KeyA") turn(rows.map(({ item }) => item), !all);
    else if (event.code === "Enter") onRow?.querySelector("a")?.click();
    else return;
    event.preventDefault();
  };
  return (
    <Wide label={t("Items")}>
      <table className="item-table" aria-label={t("Items")}>
        <thead>
          <tr>
            <th>
              <Checkbox size="xs" aria-label={t("Choose all of this page")} checked={all} indeterminate={!all && rows.some(({ item }) => chosen.has(item))} onChange={() => turn(rows.map(({ item }) => item), !all)} />
            </th>
            {[t("Item"), t("Prompt"), t("State"), t("Answers"), t("Voted"), t("Only for"), t("Before")].map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        {/* eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- rows take the keys that the line above the table names */}
        <tbody ref={table} onKeyDown={press}>
          {rows.map((row, at) => (
            <tr key={row.item} tabIndex={at === current ? 0 : -1} onFocus={() => setCurrent(at)} data-chosen={chosen.has(row.item) || undefined}>
              <td>
                <Checkbox size="xs" tabIndex={-1} aria-label={t("Choose item {{item}}", { item: String(row.item) })} checked={chosen.has(row.item)} onChange={() => turn([row.item], !chosen.has(row.item))} />
              </td>
              <td>
                <Anchor component={Link} size="sm" to={row.asks_about.startsWith("c-") ? `/data/comparisons/${row.asks_about}` : `/annotate/queue/${encodeURIComponent(queue)}?item=${row.item}`} tabIndex={-1}>
                  {String(row.item)}
                </Anchor>
              </td>
              <td className="item-excerpt" dir="auto">
                {row.excerpt}
              </td>
              <td>{row.states.map(stateInWords).join(", ")}</td>
              <td>
                {Object.entries(row.answers)
                  .map(([answer, number]) => `${answerInWords(answer)} ${number}`)
                  .join(", ")}
              </td>
              <td>{row.voters.join(", ")}</td>
              <td>{row.people.join(", ")}</td>
              <td>{row.before.join(", ")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  );
}

function Actions({ queue, chosen, clear }: { queue: string; chosen: number[]; clear: () => void }) {
  const [dialog, setDialog] = useState<"assign" | "send" | null>(null);
  const path = { params: { path: { queue } } };
  const say = (message: string) => notifications.show({ color: "teal", message });
  const change = useEdit(queue, async ({ kind, people = [] }: { kind: "removed" | "returned" | "assigned"; people?: string[] }) => {
    const { items } = await body(api.POST("/api/queues/{queue}/items/change", { ...path, body: { items: chosen, change: kind, people } }));
    if (kind === "removed") say(t("{{count}} items removed. Their votes stay; Return brings them back.", { count: items }));
    else if (kind === "returned") say(t("{{count}} items are asked again.", { count: items }));
    else say(people.length === 0 ? t("{{count}} items are for everybody again.", { count: items }) : t("{{count}} items are only for {{who}}.", { count: items, who: people.join(", ") }));
    setDialog(null);
  });
  const decide = useEdit(queue, async () => {
    const report = await body(api.POST("/api/queues/{queue}/items/resolution", { ...path, body: { items: chosen } }));
    say(t("{{count}} decided anew: {{gold}} of the chosen are gold, {{waiting}} wait for votes, {{conflicts}} have no majority.", { count: report.new, gold: report.gold, waiting: report.waiting, conflicts: report.conflicts }));
  });
  const none = chosen.length === 0;
  return (
    <>
      <Group gap="xs" role="toolbar" aria-label={t("With the chosen items")}>
        <Text size="sm" aria-live="polite">
          {t("{{count}} chosen", { count: chosen.length })}
        </Text>
        <Button variant="light" disabled={none} onClick={() => setDialog("assign")}>
          {t("Assign")}
        </Button>
        <Button variant="light" disabled={none} loading={decide.isPending} onClick={() => decide.mutate(undefined)}>
          {t("Decide by the votes")}
        </Button>
        <Button variant="light" disabled={none} onClick={() => setDialog("send")}>
          {t("Send to another queue")}
        </Button>
        <Button variant="light" color="red" disabled={none} loading={change.isPending} onClick={() => change.mutate({ kind: "removed" })}>
          {t("Remove from the queue")}
        </Button>
        <Button variant="subtle" disabled={none} onClick={() => change.mutate({ kind: "returned" })}>
          {t("Return")}
        </Button>
        <Button variant="subtle" color="gray" disabled={none} onClick={clear}>
          {t("Choose none")}
        </Button>
      </Group>
      <Text size="xs" className="dim">
        {t("In the table: arrows or j and k move, Space chooses, Shift with an arrow chooses on the way, a chooses all, Enter opens.")}
      </Text>
      {dialog === "assign" && <AssignDialog queue={queue} number={chosen.length} close={() => setDialog(null)} assign={(people) => change.mutate({ kind: "assigned", people })} />}
      {dialog === "send" && <SendDialog queue={queue} items={chosen} close={() => setDialog(null)} />}
    </>
  );
}

function AssignDialog({ queue, number, close, assign }: { queue: string; number: number; close: () => void; assign: (people: string[]) => void }) {
  const settings = useSettings(queue);
  const [people, setPeople] = useState<string[]>([]);
  return (
    <Modal opened onClose={close} title={t("Assign {{count}} items", { count: number })}>
      <Stack gap="sm">
        <TagsInput label={t("People")} description={t("They alone are asked, these items first. None: everybody.")} data={settings.data?.known_people ?? []} value={people} onChange={setPeople} splitChars={[","]} data-autofocus />
        <Group justify="flex-end">
          <Button onClick={() => assign(people)}>{people.length === 0 ? t("Ask everybody") : t("Assign")}</Button>
        </Group>
      </Stack>
    </Modal>
  );
}

function SendDialog({ queue, items, close }: { queue: string; items: number[]; close: () => void }) {
  const queues = useQuery({ queryKey: ["queues"], queryFn: () => body(api.GET("/api/queues")) });
  const [to, setTo] = useState<string | null>(null);
  const [remove, setRemove] = useState(false);
  const send = useEdit(queue, async (target: string) => {
    const sent = await body(api.POST("/api/queues/{queue}/items/sending", { params: { path: { queue } }, body: { items, to: target, remove } }));
    notifications.show({ color: "teal", message: t("{{count}} items were new there.", { count: sent.items }) });
    close();
  });
  const others = (queues.data ?? []).filter(({ name, closed }) => name !== queue && !closed);
  return (
    <Modal opened onClose={close} title={t("Send {{count}} items to another queue", { count: items.length })}>
      <Stack gap="sm">
        <Select label={t("Queue")} data={others.map(({ name, title }) => ({ value: name, label: title }))} value={to} onChange={setTo} searchable data-autofocus />
        <Switch label={t("Ask about them there alone")} checked={remove} onChange={(event) => setRemove(event.currentTarget.checked)} />
        <Text size="sm" className="dim">
          {t("They are asked as they are here, without these votes. Items with a known answer stay.")}
        </Text>
        <Group justify="flex-end">
          <Button disabled={to === null} loading={send.isPending} onClick={() => to !== null && send.mutate(to)}>
            {t("Send")}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
