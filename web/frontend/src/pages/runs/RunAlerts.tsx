import { ActionIcon, Alert, Anchor, Breadcrumbs, Button, Group, NumberInput, Select, Stack, Table, Text, TextInput, Title, Tooltip } from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../api/client";
import { useAllows } from "../../api/session";
import { formatNumber } from "../../components/chartData";
import { Empty, Failure, Waiting } from "../../components/States";
import { Wide } from "../../components/Wide";
import { moment } from "../../format/moment";
import { t } from "../../i18n";

type Rule = Schemas["AlertRule"];
type RunAlert = Schemas["RunAlert"];
type Condition = Rule["condition"];

function useAlerts(run?: string) {
  return useQuery({
    queryKey: ["runs", "alerts", run ?? null],
    queryFn: () => body(api.GET("/api/runs/alerts", { params: { query: run === undefined ? {} : { run } } })),
    refetchInterval: 10_000,
  });
}

/** Rules that ring when a run needs somebody, and what rang. */
export function RunAlerts() {
  const { data, failureReason: error } = useAlerts();
  const allowed = useAllows("curate");
  return (
    <Stack gap="sm">
      <Breadcrumbs>
        <Anchor component={Link} to="/runs" size="sm">
          {t("Runs")}
        </Anchor>
        <Text size="sm">{t("Alerts")}</Text>
      </Breadcrumbs>
      <Title order={1}>{t("Alerts")}</Title>
      <Text size="sm" className="dim">
        {t("This server looks at runs every ten seconds while it runs. A rule rings once for each run: here, on the run's page, and through webhooks that ask for alerts.")}
      </Text>
      {allowed && <NewRule />}
      {error !== null && <Failure error={error} />}
      {data === undefined ? (
        error === null && <Waiting />
      ) : (
        <>
          <Rules rules={data.rules} allowed={allowed} />
          <section aria-label={t("What rang")}>
            <Title order={2} mb={6}>
              {t("What rang")}
            </Title>
            {data.alerts.length === 0 ? (
              <Empty title={t("Nothing rang yet")} />
            ) : (
              <Stack gap={6}>
                {data.alerts.map((alert) => (
                  <OneAlert key={`${alert.rule} ${alert.run}`} alert={alert} named />
                ))}
                {data.more > 0 && <Text size="sm">{t("{{count}} older ones are not shown.", { count: data.more })}</Text>}
              </Stack>
            )}
          </section>
        </>
      )}
    </Stack>
  );
}

/** What rang for one run. */
export function AlertsOfRun({ run }: { run: string }) {
  const { data } = useAlerts(run);
  return data?.alerts.filter((alert) => alert.seen_by === null).map((alert) => <OneAlert key={alert.rule} alert={alert} />);
}

function OneAlert({ alert, named = false }: { alert: RunAlert; named?: boolean }) {
  const allowed = useAllows("curate");
  const queries = useQueryClient();
  const seen = useMutation({
    mutationFn: () => body(api.POST("/api/runs/alerts/{rule}/{run}/seen", { params: { path: { rule: alert.rule, run: alert.run } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["runs", "alerts"] }),
  });
  return (
    <Alert color={alert.seen_by === null ? "red" : "gray"} role={alert.seen_by === null ? "alert" : "note"} py={8}>
      <Group justify="space-between" gap="xs">
        <Text size="sm" style={{ overflowWrap: "anywhere" }} flex={1}>
          {named && (
            <Anchor component={Link} to={`/runs/${alert.run}`} size="sm" ff="monospace" mr={6}>
              {alert.run}
            </Anchor>
          )}
          {alertText(alert)}{" "}
          <Text span size="xs" className="dim">
            {moment(alert.at)}
            {alert.seen_by !== null && `, ${t("seen by {{name}}", { name: alert.seen_by })}`}
          </Text>
        </Text>
        {allowed && alert.seen_by === null && (
          <Button variant="subtle" size="compact-sm" loading={seen.isPending} onClick={() => seen.mutate()}>
            {t("Seen")}
          </Button>
        )}
      </Group>
      {seen.error !== null && <Failure error={seen.error} />}
    </Alert>
  );
}

export function alertText(alert: RunAlert): string {
  const { metric, step } = alert;
  const values = { metric, value: formatNumber(alert.value), reading: formatNumber(alert.reading), step };
  switch (alert.condition) {
    case "not_finite":
      return t("{{metric}} is not a number at step {{step}}", values);
    case "above":
      return t("{{metric}} is above {{value}}: {{reading}} at step {{step}}", values);
    case "below":
      return t("{{metric}} is below {{value}}: {{reading}} at step {{step}}", values);
    case "stalled":
      return t("No progress for {{minutes}} minutes", { minutes: alert.minutes });
    case "failed":
      return alert.detail === "its process is gone" ? t("It failed: its process is gone") : t("It failed: {{detail}}", { detail: alert.detail });
  }
}

function ruleText(rule: Rule): string {
  const values = { metric: rule.metric, value: formatNumber(rule.value), rows: rule.steps };
  switch (rule.condition) {
    case "not_finite":
      return rule.metric === null ? t("Any number is not finite") : t("{{metric}} is not finite", values);
    case "above":
      return rule.steps === 1 ? t("{{metric}} is above {{value}}", values) : t("{{metric}} is above {{value}} for {{rows}} rows in a row", values);
    case "below":
      return rule.steps === 1 ? t("{{metric}} is below {{value}}", values) : t("{{metric}} is below {{value}} for {{rows}} rows in a row", values);
    case "stalled":
      return t("No progress for {{minutes}} minutes", { minutes: rule.minutes });
    case "failed":
      return t("The run failed");
  }
}

function Rules({ rules, allowed }: { rules: Rule[]; allowed: boolean }) {
  const queries = useQueryClient();
  const remove = useMutation({
    mutationFn: (rule: number) => body(api.DELETE("/api/runs/alerts/{rule}", { params: { path: { rule } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["runs", "alerts"] }),
  });
  if (rules.length === 0) return <Empty title={t("No rules yet")}>{t("A good first one: the run failed.")}</Empty>;
  return (
    <Wide label={t("Rules, table")}>
      <div className="panel" style={{ padding: 0 }}>
        <Table aria-label={t("Rules")}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">{t("Rings when")}</Table.Th>
              <Table.Th scope="col">{t("Of runs")}</Table.Th>
              <Table.Th scope="col">{t("By")}</Table.Th>
              <Table.Th w={40} aria-label={t("Delete")} />
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rules.map((rule) => (
              <Table.Tr key={rule.id}>
                <Table.Td style={{ overflowWrap: "anywhere" }}>{ruleText(rule)}</Table.Td>
                <Table.Td style={{ overflowWrap: "anywhere" }}>{rule.run ?? rule.kind ?? t("all")}</Table.Td>
                <Table.Td>
                  {rule.by}, {moment(rule.created)}
                </Table.Td>
                <Table.Td>
                  {allowed && (
                    <Tooltip label={t("Delete the rule; what rang stays")}>
                      <ActionIcon variant="subtle" color="gray" aria-label={t("Delete the rule: {{rule}}", { rule: ruleText(rule) })} onClick={() => remove.mutate(rule.id)}>
                        <IconTrash size={14} />
                      </ActionIcon>
                    </Tooltip>
                  )}
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      {remove.error !== null && <Failure error={remove.error} />}
    </Wide>
  );
}

function NewRule() {
  const queries = useQueryClient();
  const [condition, setCondition] = useState<Condition>("failed");
  const [metric, setMetric] = useState("");
  const [value, setValue] = useState<number | string>("");
  const [steps, setSteps] = useState<number | string>(1);
  const [minutes, setMinutes] = useState<number | string>(30);
  const [scope, setScope] = useState("");
  const ofMetric = condition === "above" || condition === "below";
  const add = useMutation({
    mutationFn: () =>
      body(
        api.POST("/api/runs/alerts", {
          body: {
            condition,
            metric: (ofMetric || condition === "not_finite") && metric.trim() !== "" ? metric.trim() : null,
            value: ofMetric && typeof value === "number" ? value : null,
            steps: ofMetric && typeof steps === "number" ? steps : 1,
            minutes: typeof minutes === "number" ? minutes : 30,
            ...(scope.trim().startsWith("run-") ? { run: scope.trim() } : { kind: scope.trim() || null }),
          },
        }),
      ),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["runs", "alerts"] }),
  });
  const conditions: Record<Condition, string> = {
    failed: t("the run failed"),
    stalled: t("no progress"),
    not_finite: t("a number is not finite"),
    above: t("a number is above"),
    below: t("a number is below"),
  };
  const complete = !ofMetric || (metric.trim() !== "" && typeof value === "number");
  return (
    <form
      className="panel"
      aria-label={t("New rule")}
      onSubmit={(event) => {
        event.preventDefault();
        if (complete) add.mutate();
      }}
    >
      <Group align="end" gap="xs">
        <Select
          label={t("Ring when")}
          w={200}
          allowDeselect={false}
          value={condition}
          onChange={(chosen) => chosen !== null && setCondition(chosen as Condition)}
          data={Object.entries(conditions).map(([name, label]) => ({ value: name, label }))}
        />
        {(ofMetric || condition === "not_finite") && (
          <TextInput label={t("Metric")} w={200} placeholder={t("any of metrics.jsonl")} value={metric} onChange={(event) => setMetric(event.currentTarget.value)} />
        )}
        {ofMetric && <NumberInput label={t("Value")} w={110} value={value} onChange={setValue} />}
        {ofMetric && <NumberInput label={t("Rows in a row")} w={120} min={1} value={steps} onChange={setSteps} />}
        {condition === "stalled" && <NumberInput label={t("Minutes")} w={110} min={1} value={minutes} onChange={setMinutes} />}
        <TextInput label={t("Kind or id of runs")} w={200} placeholder={t("all")} value={scope} onChange={(event) => setScope(event.currentTarget.value)} />
        <Button type="submit" disabled={!complete} loading={add.isPending}>
          {t("Add the rule")}
        </Button>
      </Group>
      {add.error !== null && <Failure error={add.error} />}
    </form>
  );
}
