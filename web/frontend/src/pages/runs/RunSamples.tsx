import { Badge, Button, Group, NumberInput, Pagination, SegmentedControl, Slider, Stack, Table, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { formatNumber } from "../../components/chartData";
import { Messages } from "../../components/Messages";
import { Empty, Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";
import { RunEpisode } from "./RunEpisode";
import { RunTables } from "./RunTables";
import { useCut } from "./useCut";

type Sample = Schemas["SampleReply"];
const PAGE = 20;
const ORDERS = ["best", "worst", "group"] as const;

/** Rollouts of one step, to be read: the prompt, what was answered, what each part of the reward said of it. */
export function RunSamples({ id, running }: { id: string; running: boolean }) {
  const [address, setAddress] = useSearchParams();
  const requested = address.get("step");
  const order = ORDERS.find((one) => one === address.get("order")) ?? "best";
  const page = Math.max(1, Number(address.get("page")) || 1);
  const above = Number(address.get("solved") ?? 0.5);
  const change = (changes: Record<string, string | null>) =>
    setAddress(
      (before) => {
        const after = new URLSearchParams(before);
        for (const [name, value] of Object.entries({ page: null, ...changes })) {
          if (value === null) after.delete(name);
          else after.set(name, value);
        }
        return after;
      },
      { replace: "solved" in changes }, // typed
    );
  const query = { ...(requested === null ? {} : { step: Number(requested) }), order, limit: PAGE, offset: (page - 1) * PAGE, solved_above: above };
  const { data, failureReason: error } = useQuery({
    queryKey: ["run", id, "samples", query],
    queryFn: () => body(api.GET("/api/runs/{run_id}/samples", { params: { path: { run_id: id }, query } })),
    placeholderData: keepPreviousData,
    refetchInterval: running && requested === null ? 4000 : false,
  });
  if (data === undefined) return error === null ? <Waiting /> : <Failure error={error} />;
  if (data.step === null || data.first === null || data.last === null) return <Empty title={t("No rollouts yet")}>{t("They are written at the end of each step.")}</Empty>;
  const go = (step: number) => change({ step: step >= data.last! ? null : String(step) });
  return (
    <Stack gap="sm">
      <Group align="end" gap="md">
        <NumberInput label={t("Step")} w={90} min={data.first} max={data.last} value={data.step} onChange={(value) => typeof value === "number" && value >= data.first! && go(value)} />
        {data.last > data.first && (
          <Slider w={220} mb={8} label={null} thumbLabel={t("Step")} min={data.first} max={data.last} value={data.step} onChange={go} />
        )}
        <SegmentedControl aria-label={t("Order")} value={order} onChange={(value) => change({ order: value })} data={[{ value: "best", label: t("best first") }, { value: "worst", label: t("worst first") }, { value: "group", label: t("by prompt") }]} />
        <Text size="sm" className="dim" role="status">
          {t("{{rollouts}} of step {{step}}", { rollouts: t("{{count}} rollouts", { count: data.total }), step: data.step })}
          {requested === null && running ? t(", the newest") : ""}
        </Text>
        {requested !== null && data.step < data.last && (
          <Button variant="subtle" onClick={() => change({ step: null })}>{t("Newest step")}</Button>
        )}
      </Group>
      {data.episodes != null && (
        <details>
          <summary>{t("Success, calls, tokens, loops and reward by turn of the step's episodes")}</summary>
          {data.samples.some(({ verified }) => verified === null) && (
            <NumberInput label={t("Solved: no verdict, and a reward above")} w={260} my="xs" step={0.1} value={above} onChange={(value) => typeof value === "number" && change({ solved: value === 0.5 ? null : String(value) })} />
          )}
          <RunTables tables={[data.episodes]} />
        </details>
      )}
      {data.samples.length === 0 ? <Empty title={t("No rollouts of this step")} /> : <Samples samples={data.samples} />}
      {data.total > PAGE && <Pagination size="sm" total={Math.ceil(data.total / PAGE)} value={page} onChange={(value) => change({ page: String(value) })} getControlProps={(control) => ({ "aria-label": t("{{control}} page", { control }) })} />}
    </Stack>
  );
}

function Samples({ samples }: { samples: Sample[] }) {
  const parts = [...new Set(samples.flatMap((one) => Object.keys(one.parts)))];
  const [opened, setOpened] = useState<ReadonlySet<number>>(new Set());
  const toggle = (index: number) => setOpened((now) => new Set(now.has(index) ? [...now].filter((one) => one !== index) : [...now, index]));
  return (
    <div className="panel" style={{ padding: 0, overflowX: "auto" }}>
      <Table aria-label={t("Rollouts")}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th scope="col" w={{ base: "44%", sm: "34%" }}>{t("Prompt")}</Table.Th>
            <Table.Th scope="col">{t("Response")}</Table.Th>
            <Table.Th scope="col" visibleFrom="sm">{t("Reward")}</Table.Th>
            {parts.length > 1 &&
              parts.map((part) => (
                <Table.Th key={part} scope="col" visibleFrom="sm">
                  {part}
                </Table.Th>
              ))}
            <Table.Th scope="col" visibleFrom="sm">{t("Advantage")}</Table.Th>
            <Table.Th scope="col" visibleFrom="sm">{t("Tokens")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {samples.map((one, index) => (
            <SampleRow key={index} sample={one} parts={parts.length > 1 ? parts : []} opened={opened.has(index)} toggle={() => toggle(index)} />
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

interface SampleRowProps {
  sample: Sample;
  parts: string[];
  opened: boolean;
  toggle: () => void;
}

function SampleRow({ sample, parts, opened, toggle }: SampleRowProps) {
  const { row, cut } = useCut(opened);
  const text = { fz: "sm", style: { whiteSpace: "pre-wrap", overflowWrap: "anywhere" }, ...(opened ? {} : { lineClamp: 4 }) } as const;
  const turns = opened ? sample.prompt : sample.prompt.slice(-1);
  const { episode } = sample;
  const invalid = episode?.turns.reduce((sum, turn) => sum + turn.invalid, 0) ?? 0;
  return (
    <>
    <Table.Tr ref={row} style={{ verticalAlign: "top" }}>
      <Table.Td>
        {turns.map((turn, number) => (
          <div key={number}>
            {sample.prompt.length > 1 && (
              <Text size="xs" className="dim">
                {turn.role}
              </Text>
            )}
            {typeof turn.content === "string" ? (
              <Text {...text} data-cuts>{turn.content}</Text>
            ) : (
              <Messages turns={[turn]} plain expected={turn.role} />
            )}
          </div>
        ))}
      </Table.Td>
      <Table.Td>
        {episode !== null && (
          <Text size="xs" className="dim">
            {`${episode.environment}, ${t("{{count}} turns", { count: episode.turns.length })}`}
          </Text>
        )}
        {!(opened && episode !== null) && (
          <Text {...text} data-cuts className={sample.response.trim() === "" ? "dim" : ""}>
            {sample.response.trim() === "" ? t("(nothing)") : sample.response}
          </Text>
        )}
        <Text size="xs" className="dim" hiddenFrom="sm">
          {[["reward", sample.reward], ...parts.map((part) => [part, sample.parts[part]] as const), ["advantage", sample.advantage]]
            .map(([name, value]) => `${name} ${value === null ? "none" : formatNumber(value as number)}`)
            .join(", ")}
        </Text>
        <Group gap={4} mt={2}>
          {sample.truncated && <Mark colour="gray" text={t("cut at the limit")} />}
          {invalid > 0 && <Mark colour="yellow" text={t("{{calls}} could not be run", { calls: t("{{count}} calls", { count: invalid }) })} />}
          {!sample.trained && <Mark colour="gray" text={t("not trained on")} />}
          {sample.failures.map((failure) => (
            <Mark key={failure} colour="red" text={failure} />
          ))}
          {(opened || cut || sample.prompt.length > 1 || episode !== null) && (
            <Button variant="subtle" size="compact-xs" aria-expanded={opened} onClick={toggle}>
              {opened ? t("Less") : episode === null ? t("All of it") : t("Turn by turn")}
            </Button>
          )}
        </Group>
      </Table.Td>
      <Table.Td visibleFrom="sm">{sample.reward === null ? t("none") : formatNumber(sample.reward)}</Table.Td>
      {parts.map((part) => (
        <Table.Td key={part} visibleFrom="sm">{formatNumber(sample.parts[part])}</Table.Td>
      ))}
      <Table.Td visibleFrom="sm">{formatNumber(sample.advantage)}</Table.Td>
      <Table.Td visibleFrom="sm">{sample.tokens}</Table.Td>
    </Table.Tr>
    {opened && episode !== null && (
      <Table.Tr>
        <Table.Td colSpan={5 + parts.length}>
          <RunEpisode episode={episode} />
        </Table.Td>
      </Table.Tr>
    )}
    </>
  );
}

function Mark({ colour, text }: { colour: string; text: string }) {
  return (
    <Badge size="xs" variant="light" color={colour} tt="none" radius="sm" h="auto" ta="left" styles={{ label: { whiteSpace: "normal", overflowWrap: "anywhere" } }}>
      {text}
    </Badge>
  );
}
