import { Anchor, Badge, Button, Group, Pagination, SegmentedControl, SimpleGrid, Table, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { formatNumber } from "../../components/chartData";
import { Messages } from "../../components/Messages";
import { Empty, Failure, Waiting } from "../../components/States";
import { instant } from "../../format/moment";
import { t } from "../../i18n";
import { useCut } from "./useCut";

type Asked = Schemas["AskedLabelReply"];
const PAGE = 20;

/** The pairs that a loop asked about, newest first: why it picked them, and what was answered. */
export function LoopLabels({ id, running }: { id: string; running: boolean }) {
  const [address, setAddress] = useSearchParams();
  const waiting = address.get("asked") === "waiting";
  const page = Math.max(1, Number(address.get("page")) || 1);
  const query = { waiting, limit: PAGE, offset: (page - 1) * PAGE };
  const { data, failureReason: error } = useQuery({
    queryKey: ["run", id, "loop", "labels", query],
    queryFn: () => body(api.GET("/api/runs/{run_id}/loop/labels", { params: { path: { run_id: id }, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: running ? 3000 : false,
  });
  return (
    <section aria-label={t("What was asked")}>
      <Group gap="md" mb={6}>
        <Title order={2}>{t("What was asked")}</Title>
        {data !== undefined && (
          <>
            <SegmentedControl
              aria-label={t("Which pairs")}
              value={waiting ? "waiting" : "all"}
              onChange={(value) => setAddress(value === "all" ? {} : { asked: value })}
              data={[
                { value: "all", label: t("all") },
                { value: "waiting", label: t("waiting ({{waiting}})", { waiting: data.waiting }) },
              ]}
            />
            <Text size="sm" className="dim" role="status">
              {t("{{pairs}}, newest first", { pairs: t("{{count}} pairs", { count: data.total }) })}
            </Text>
          </>
        )}
      </Group>
      {error !== null && <Failure error={error} />}
      {data === undefined && error === null && <Waiting />}
      {data !== undefined &&
        (data.labels.length === 0 ? (
          <Empty title={waiting ? t("Nothing is waited for") : t("Nothing was asked yet")}>
            {waiting ? t("Every pair that was asked about has its answer, or none will come.") : t("The selector picks pairs among the rollouts of a step that buys labels.")}
          </Empty>
        ) : (
          <AskedTable labels={data.labels} />
        ))}
      {data !== undefined && data.total > PAGE && (
        <Pagination
          mt="sm"
          size="sm"
          total={Math.ceil(data.total / PAGE)}
          value={page}
          onChange={(value) => setAddress({ ...(waiting ? { asked: "waiting" } : {}), page: String(value) })}
          getControlProps={(control) => ({ "aria-label": t("{{control}} page", { control }) })}
        />
      )}
    </section>
  );
}

function AskedTable({ labels }: { labels: Asked[] }) {
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) => setOpened((now) => new Set(now.has(id) ? [...now].filter((one) => one !== id) : [...now, id]));
  return (
    <div className="panel" style={{ padding: 0, overflowX: "auto" }}>
      <Table aria-label={t("Pairs that were asked about")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col" w={56}>{t("Step")}</Table.Th>
            <Table.Th scope="col">{t("Prompt and responses")}</Table.Th>
            <Table.Th scope="col" w={110} visibleFrom="sm">{t("Label")}</Table.Th>
            <Table.Th scope="col" w={190} visibleFrom="sm">{t("Why it was picked")}</Table.Th>
            <Table.Th scope="col" w={190} visibleFrom="md">{t("By whom and when")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {labels.map((one) => (
            <AskedRow key={one.comparison_id} asked={one} opened={opened.has(one.comparison_id)} toggle={() => toggle(one.comparison_id)} />
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

const answer = ({ label, waiting }: Asked) => label ?? (waiting ? t("waited for") : t("no answer"));
const reasons = ({ selector, why }: Asked) => [selector, ...Object.entries(why).map(([name, value]) => `${name.replaceAll("_", " ")} ${formatNumber(value)}`)];
const times = ({ source, asked_at, answered_at }: Asked) => [source, asked_at === null ? "" : t("asked {{asked_at}}", { asked_at: instant(asked_at) }), answered_at === null ? "" : t("answered {{answered_at}}", { answered_at: instant(answered_at) })].filter(Boolean);

function AskedRow({ asked, opened, toggle }: { asked: Asked; opened: boolean; toggle: () => void }) {
  const { row, cut } = useCut(opened);
  const turns = opened ? asked.prompt : asked.prompt.slice(-1);
  return (
    <Table.Tr ref={row} style={{ verticalAlign: "top" }}>
      <Table.Td>{asked.step}</Table.Td>
      <Table.Td>
        <SimpleGrid cols={{ base: 1, md: 3 }} spacing="sm" verticalSpacing={4}>
          <div>
            <Text size="xs" className="dim">{t("Prompt")}</Text>
            {turns.map((turn, number) => (typeof turn.content === "string" ? <Folding key={number} text={turn.content} opened={opened} /> : <Messages key={number} turns={[turn]} plain expected={turn.role} />))}
          </div>
          {asked.responses.map((response, number) => (
            <div key={number}>
              <Text size="xs" className="dim">
                {t("Response {{side}}", { side: "AB"[number] })}
                {asked.label === "AB"[number] && <b>{t(", preferred")}</b>}
              </Text>
              <Folding text={response} opened={opened} />
            </div>
          ))}
        </SimpleGrid>
        <Text size="xs" className="dim" hiddenFrom="sm" mt={4}>
          {t("Label: {{label}}. Picked by {{reasons}}.", { label: answer(asked), reasons: reasons(asked).join(", ") })}
        </Text>
        <Text size="xs" className="dim" hiddenFrom="md">
          {times(asked).join(", ")}
        </Text>
        <Group gap={4} mt={2}>
          {(opened || cut || asked.prompt.length > 1) && (
            <Button variant="subtle" size="compact-xs" aria-expanded={opened} onClick={toggle}>
              {opened ? t("Less") : t("All of it")}
            </Button>
          )}
          <Anchor component={Link} to={`/data/comparisons/${asked.comparison_id}`} size="xs">
            {t("Comparison")}
          </Anchor>
        </Group>
      </Table.Td>
      <Table.Td visibleFrom="sm">
        <Text size="sm" fw={600}>
          {answer(asked)}
        </Text>
        {asked.held_out && <Mark text={t("not trained on")} />}
        {asked.contradicts && <Mark text="contradicted" />}
        {asked.cost > 0 && (
          <Text size="xs" className="dim">{t("cost {{cost}}", { cost: formatNumber(asked.cost) })}</Text>
        )}
      </Table.Td>
      <Table.Td visibleFrom="sm">
        {reasons(asked).map((reason, number) => (
          <Text key={reason} size={number === 0 ? "sm" : "xs"}>
            {reason}
          </Text>
        ))}
      </Table.Td>
      <Table.Td visibleFrom="md" style={{ overflowWrap: "anywhere" }}>
        {times(asked).map((time, number) => (
          <Text key={time} size={number === 0 ? "sm" : "xs"}>
            {time}
          </Text>
        ))}
      </Table.Td>
    </Table.Tr>
  );
}

function Folding({ text, opened }: { text: string; opened: boolean }) {
  const empty = text.trim() === "";
  return (
    <Text fz="sm" data-cuts className={empty ? "dim" : ""} style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }} {...(opened ? {} : { lineClamp: 4 })}>
      {empty ? t("(nothing)") : text}
    </Text>
  );
}

function Mark({ text }: { text: string }) {
  return (
    <Badge size="xs" variant="light" color="gray" tt="none">
      {text}
    </Badge>
  );
}
