import "./RunConsole.css";

import { Button, Checkbox, Group, Stack, Text, TextInput } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import { api, body, type Schemas } from "../../api/client";
import { download } from "../../components/chartExport";
import { Empty, Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";

type Console = Schemas["ConsoleReply"];
const LIVE_MS = 2000;
/** Lines that are kept in the page; before them there is the file. */
const MOST = 20_000;

/** What the run printed, as it is printed. */
export function RunConsole({ id, running }: { id: string; running: boolean }) {
  const queries = useQueryClient();
  const key = ["run", id, "console"];
  const [text, setText] = useState("");
  const [times, setTimes] = useState(true);
  const [follow, setFollow] = useState(true);
  const end = useRef<HTMLPreElement>(null);
  const { data, failureReason: error } = useQuery({
    queryKey: key,
    structuralSharing: false,
    queryFn: async () => {
      const before = queries.getQueryData<Console>(key);
      const query = before === undefined ? {} : { after: before.next };
      const reply = await body(api.GET("/api/runs/{run_id}/console", { params: { path: { run_id: id }, query } }));
      // Not where the last reply ended: the file was cut, and this is its end.
      return before === undefined || reply.first !== before.next ? reply : { ...reply, first: before.first, lines: [...before.lines, ...reply.lines].slice(-MOST) };
    },
    refetchInterval: ({ state: { data: now } }) => (now !== undefined && now.next < now.size ? 50 : running ? LIVE_MS : false),
  });
  useEffect(() => {
    if (follow && end.current !== null) end.current.scrollTop = end.current.scrollHeight;
  }, [data, follow, text]);
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.lines.length === 0) return <Empty title={running ? t("Nothing was printed yet") : t("This run printed nothing")}>{t("Output of native code and of other processes is not recorded.")}</Empty>;
  const query = text.trim().toLowerCase();
  const lines = query === "" ? data.lines : data.lines.filter((line) => line.toLowerCase().includes(query));
  return (
    <Stack gap="xs">
      <Group gap="xs">
        <TextInput aria-label={t("Search in the output")} placeholder={t("Search in the output")} w={240} value={text} onChange={(event) => setText(event.currentTarget.value)} />
        <Checkbox size="xs" label={t("times")} checked={times} onChange={(event) => setTimes(event.currentTarget.checked)} />
        {running && <Checkbox size="xs" label={t("follow")} checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />}
        <Button variant="subtle" size="compact-sm" color="gray" onClick={() => download(`${id}.log`, data.lines.join("\n") + "\n")}>
          {t("Download")}
        </Button>
        <Text size="xs" className="dim" role="status">
          {query === "" ? t("{{count}} lines", { count: lines.length }) : t("{{shown}} of {{count}} lines", { shown: lines.length, count: data.lines.length })}
          {data.first > 0 && `; ${t("earlier output is in console.log of the run's folder")}`}
        </Text>
      </Group>
      {error !== null && <Failure error={error} />}
      <pre
        ref={end}
        className="panel run-console"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
        tabIndex={0}
        role="region"
        aria-label={t("Console output")}
        onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => setFollow(scrollTop + clientHeight >= scrollHeight - 4)}
      >
        {lines.map((line) => shownLine(line, times)).join("\n")}
      </pre>
    </Stack>
  );
}

/** With the time where the reader is, or without. */
function shownLine(line: string, times: boolean): string {
  const space = line.indexOf(" ");
  const content = line.slice(space + 1);
  if (!times) return content;
  const at = new Date(line.slice(0, space));
  return `${Number.isNaN(at.getTime()) ? "" : at.toLocaleTimeString()}  ${content}`;
}
