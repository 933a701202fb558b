import { Anchor, Breadcrumbs, Group, NumberInput, Pagination, Stack, Table, Text, TextInput, Title } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { formatNumber } from "../../components/chartData";
import { Messages } from "../../components/Messages";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { t } from "../../i18n";
import { CopyLink } from "./curveView";

const PAGE = 10;

/** What several runs, or several steps of one, answered to the same prompts. */
export function CompareSamples() {
  const [address, setAddress] = useSearchParams();
  const runs = address.getAll("run").slice(0, 8);
  const steps = runs.map((_, number) => {
    const step = address.getAll("step")[number];
    return step === undefined || step === "" || !(Number(step) >= 0) ? -1 : Number(step);
  });
  const text = address.get("text") ?? "";
  const page = Math.max(1, Number(address.get("page")) || 1);
  const query = { run: runs, step: steps, text, limit: PAGE, offset: (page - 1) * PAGE };
  const { data, failureReason: error } = useQuery({
    queryKey: ["runs", "samples", query],
    enabled: runs.length > 0,
    queryFn: () => body(api.GET("/api/runs/samples", { params: { query } })),
    placeholderData: keepPreviousData,
  });
  const change = (edit: (after: URLSearchParams) => void) =>
    setAddress(
      (before) => {
        const after = new URLSearchParams(before);
        after.delete("page");
        edit(after);
        return after;
      },
      { replace: true },
    );
  const setStep = (number: number, step: number | null) =>
    change((after) => {
      after.delete("step");
      steps.forEach((old, index) => after.append("step", String(index === number ? (step ?? -1) : old)));
    });
  const search = useDebouncedCallback((value: string) => change((after) => (value ? after.set("text", value) : after.delete("text"))), 250);
  if (runs.length === 0) return <Empty title={t("Choose runs to compare")}>{t("Mark them in the list, press Compare, then Responses side by side.")}</Empty>;
  return (
    <Stack gap="sm">
      <Breadcrumbs>
        <Anchor component={Link} to="/runs" size="sm">
          {t("Runs")}
        </Anchor>
        <Text size="sm">{t("Responses side by side")}</Text>
      </Breadcrumbs>
      <Title order={1}>{t("Responses side by side")}</Title>
      <Group align="end" gap="md">
        {runs.map((run, number) => (
          <NumberInput
            key={number}
            label={<Text span size="xs" ff="monospace">{run.slice(-6)}</Text>}
            aria-label={t("Step of {{run}}", { run })}
            description={data?.bounds[number] == null ? t("no rollouts") : t("step, {{first}} to {{last}}", { first: data.bounds[number].first, last: data.bounds[number].last })}
            w={130}
            disabled={data?.bounds[number] == null}
            {...(data?.bounds[number] == null ? {} : { min: data.bounds[number].first, max: data.bounds[number].last })}
            value={data?.steps[number] ?? ""}
            onChange={(value) => setStep(number, typeof value === "number" ? value : null)}
          />
        ))}
        <TextInput label={t("In the prompt")} w={220} defaultValue={text} onChange={(event) => search(event.currentTarget.value)} />
        {runs.length < 8 && (
          <Anchor component="button" size="sm" mb={8} onClick={() => change((after) => after.append("run", runs.at(-1)!))}>
            {t("Add a step of the last run")}
          </Anchor>
        )}
        <CopyLink />
      </Group>
      {error !== null && <Failure error={error} />}
      {data === undefined ? error === null && <Waiting /> : <Prompts data={data} runs={runs} />}
      {data !== undefined && data.total > PAGE && (
        <Pagination
          size="sm"
          total={Math.ceil(data.total / PAGE)}
          value={page}
          onChange={(value) => change((after) => after.set("page", String(value)))}
          getControlProps={(control) => ({ "aria-label": { first: t("first page"), last: t("last page"), next: t("next page"), previous: t("previous page") }[control] })}
        />
      )}
    </Stack>
  );
}

function Prompts({ data, runs }: { data: Schemas["SamplesSideBySide"]; runs: string[] }) {
  if (data.total === 0) return <Empty title={t("No rollouts to compare")}>{t("Choose other steps, or another text of the prompt.")}</Empty>;
  const shared = data.prompts.some((one) => one.samples.filter((samples) => samples.length > 0).length > 1);
  return (
    <>
    {!shared && runs.length > 1 && (
      <Text size="sm" className="dim">
        {t("No prompt was asked at more than one of these steps. Runs with the same data and seed ask the same prompts at the same step.")}
      </Text>
    )}
    <Wide label={t("Responses, table")}>
      <div className="panel" style={{ padding: 0, minWidth: 220 + 240 * runs.length }}>
        <Table layout="fixed" aria-label={t("Responses side by side")}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">{t("Prompt")}</Table.Th>
              {runs.map((run, number) => (
                <Table.Th key={number} scope="col">
                  <Anchor component={Link} to={`/runs/${run}/samples${data.steps[number] == null ? "" : `?step=${data.steps[number]}`}`} size="sm" ff="monospace">
                    {run.slice(-6)}
                  </Anchor>
                  {data.steps[number] != null && (
                    <Text span size="xs" className="dim" fw={400}>
                      {" "}
                      {t("step {{step}}", { step: data.steps[number] })}
                    </Text>
                  )}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {data.prompts.map((one, index) => (
              <Table.Tr key={index} style={{ verticalAlign: "top" }}>
                <Table.Td>
                  <Messages turns={one.prompt} plain />
                </Table.Td>
                {one.samples.map((samples, number) => (
                  <Table.Td key={number}>
                    <Answers samples={samples} />
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
    </Wide>
    </>
  );
}

/** The best first; the others when asked for. */
function Answers({ samples }: { samples: Schemas["SampleReply"][] }) {
  const [all, setAll] = useState(false);
  if (samples.length === 0)
    return (
      <Text size="sm" className="dim">
        {t("not asked here")}
      </Text>
    );
  const sorted = [...samples].sort((a, b) => (b.reward ?? -Infinity) - (a.reward ?? -Infinity));
  return (
    <Stack gap={8}>
      {(all ? sorted : sorted.slice(0, 1)).map((one, index) => (
        <div key={index}>
          <Text size="xs" className="dim">
            {[one.reward === null ? t("no reward") : t("reward {{value}}", { value: formatNumber(one.reward) }), t("{{count}} tokens", { count: one.tokens }), one.truncated ? t("cut at the limit") : ""].filter(Boolean).join(", ")}
          </Text>
          <Text size="sm" dir="auto" style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere", maxHeight: 360, overflowY: "auto" }} className={one.response.trim() === "" ? "dim" : ""}>
            {one.response.trim() === "" ? t("(nothing)") : one.response}
          </Text>
        </div>
      ))}
      {samples.length > 1 && (
        <Anchor component="button" size="xs" ta="left" style={{ alignSelf: "flex-start" }} onClick={() => setAll(!all)} aria-expanded={all}>
          {all ? t("The best alone") : t("{{count}} more responses", { count: samples.length - 1 })}
        </Anchor>
      )}
    </Stack>
  );
}
