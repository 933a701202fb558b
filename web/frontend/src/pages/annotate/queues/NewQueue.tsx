import { Alert, Anchor, Button, Group, MultiSelect, NumberInput, Paper, Select, Stack, Switch, TagsInput, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure } from "../../../components/States";
import { poolChoices } from "../../../components/PoolBadge";
import { t } from "../../../i18n";
import { FieldFilters, type ChosenField } from "./FieldFilters";
import { questions, type Question } from "./questions";

const POOLS = ["unverified", "gold", "silver", "recycled", "discarded", "pending"];

const SCALE = /^(.*\S)\s*:\s*(\d{1,3})-(\d{1,3})$/;

/** A queue from a selection of comparisons, or of their responses. */
export function NewQueue() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [fields, setAsked] = useState({
    name: "",
    question: "pair" as Question,
    scales: ["overall:1-5"],
    labels: ["error"],
    byTurns: false,
    pools: ["unverified"],
    sources: [] as string[],
    categories: [] as string[],
    limit: 200 as number | null,
    overlap: 1,
    everyone: false,
    checks: 10,
    guideline: "",
    reason: "",
    principles: [] as string[],
    lease: 30,
    project: "default",
    fields: [] as ChosenField[],
  });
  // From a comparison's page: those nearest to it.
  const likeness = useSearchParams()[0].get("similar_to");
  const set = (part: Partial<typeof fields>) => setAsked({ ...fields, ...part });
  const pair = fields.question === "pair";
  const asked = questions().find(({ value }) => value === fields.question)!;
  // Suggested, not demanded: the store may be busy, and a name that is none is refused with those there are.
  const facets = useQuery({
    queryKey: ["comparison-facets"],
    queryFn: () => body(api.GET("/api/comparisons/facets")),
    staleTime: 60_000,
  });
  const make = useMutation({
    mutationFn: (queue: Schemas["NewQueue"]) => body(api.POST("/api/queues", { body: queue })),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["queues"] });
      void navigate("/annotate");
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const { name, question, pools, sources, categories, limit, guideline, reason, principles, project } = fields;
    make.mutate({
      ...{ name, question, pools, sources, categories, limit, guideline, reason, project, seed: 0 },
      principles: pair ? principles : [],
      scales: fields.scales.map(scaleOf),
      labels: fields.labels,
      by_turns: question === "steps" && fields.byTurns,
      overlap: fields.everyone ? "all" : fields.overlap,
      gold_checks: question === "spans" ? 0 : fields.checks / 100,
      lease_minutes: fields.lease,
      fields: likeness === null ? fields.fields.filter(({ values }) => values.length > 0) : [],
      similar_to: likeness,
    });
  };
  return (
    <Paper withBorder p="md" maw={640}>
      <form onSubmit={submit}>
        <Stack gap="sm">
          <Title order={1}>{t("New queue")}</Title>
          <TextInput
            label={t("Name")}
            description={t("Letters and digits; after the first also . _ + -")}
            required
            pattern="[A-Za-z0-9][A-Za-z0-9_.+\-]{0,99}"
            title={t("Letters and digits; after the first also . _ + -")}
            value={fields.name}
            onChange={(event) => set({ name: event.currentTarget.value })}
          />
          <TextInput
            label={t("Project")}
            description={t("Whose members are asked; one of yours")}
            required
            value={fields.project}
            onChange={(event) => set({ project: event.currentTarget.value })}
          />
          <Select
            label={t("Question")}
            description={asked.about}
            data={questions()}
            allowDeselect={false}
            value={fields.question}
            onChange={(question) => set({ question: question as Question, pools: question === "pair" ? ["unverified"] : [] })}
          />
          {fields.question === "rating" && (
            <TagsInput
              label={t("Scales")}
              description={t("What is rated, and from where to where: helpfulness:1-5. Enter ends each.")}
              required
              splitChars={[","]}
              error={fields.scales.length === 0 || fields.scales.some((scale) => scaleOf(scale).low >= scaleOf(scale).high) ? t("At least one, its lower end first") : undefined}
              value={fields.scales}
              onChange={(scales) => set({ scales: scales.map(scaleText) })}
            />
          )}
          {fields.question === "spans" && (
            <TagsInput label={t("Labels")} description={t("What marked words can be. Enter ends each.")} required splitChars={[","]} value={fields.labels} onChange={(labels) => set({ labels })} />
          )}
          {fields.question === "steps" && (
            <Switch label={t("Each turn of the assistant is a step")} checked={fields.byTurns} onChange={(event) => set({ byTurns: event.currentTarget.checked })} />
          )}
          <MultiSelect label={t("Pools")} description={pair ? undefined : t("None: all, also responses that are in no comparison")} data={poolChoices(POOLS)} value={fields.pools} onChange={(pools) => set({ pools })} />
          <Group grow align="start">
            <TagsInput
              label={t("Sources")}
              description={t("None: all")}
              splitChars={[]}
              data={facets.data?.sources.map(({ value }) => value)}
              value={fields.sources}
              onChange={(sources) => set({ sources })}
            />
            <TagsInput
              label={t("Categories")}
              description={t("None: all")}
              splitChars={[]}
              data={facets.data?.categories.map(({ value }) => value)}
              value={fields.categories}
              onChange={(categories) => set({ categories })}
            />
          </Group>
          {likeness === null ? (
            <FieldFilters chosen={fields.fields} choose={(chosen) => set({ fields: chosen })} />
          ) : (
            <Alert color="blue" title={t("By likeness")}>
              {t("The queue takes one comparison and those nearest to it, as many as are named below, of the pools above.")}{" "}
              <Anchor component={Link} to={`/data/comparisons/${likeness}`} size="sm">
                {t("The comparison")}
              </Anchor>
            </Alert>
          )}
          <Group grow align="end">
            <NumberInput
              label={t("At most")}
              description={t("Drawn by hash; empty: all")}
              min={1}
              value={fields.limit ?? ""}
              onChange={(value) => set({ limit: value === "" ? null : Number(value) })}
            />
            <NumberInput
              label={t("People who see each")}
              min={1}
              disabled={fields.everyone}
              value={fields.overlap}
              onChange={(value) => set({ overlap: Number(value) || 1 })}
            />
          </Group>
          <Switch label={t("Everyone votes on everything")} checked={fields.everyone} onChange={(event) => set({ everyone: event.currentTarget.checked })} />
          <Group grow align="end">
            <NumberInput
              label={t("Gold checks, %")}
              description={pair ? t("Known answers mixed in") : t("What people of earlier queues agreed on, or was adjudicated")}
              disabled={fields.question === "spans"}
              min={0}
              max={50}
              value={fields.checks}
              onChange={(value) => set({ checks: Number(value) || 0 })}
            />
            <NumberInput
              label={t("Lease, minutes")}
              description={t("Until an untouched item goes to others")}
              min={0.1}
              max={10_080}
              value={fields.lease}
              onChange={(value) => set({ lease: Number(value) || 30 })}
            />
          </Group>
          <Textarea label={t("Guideline")} description={t("Shown beside every item")} autosize minRows={2} value={fields.guideline} onChange={(event) => set({ guideline: event.currentTarget.value })} />
          <TextInput label={t("Why these are asked")} description={t("Shown beside every item")} value={fields.reason} onChange={(event) => set({ reason: event.currentTarget.value })} />
          {pair && (
            <TagsInput
              label={t("Principles")}
              description={t("Asked of both responses: yes, partly or no, with the words that show it. Enter ends each.")}
              splitChars={[]}
              maxTags={20}
              value={fields.principles}
              onChange={(principles) => set({ principles })}
            />
          )}
          {make.error !== null && <Failure error={make.error} />}
          <Group gap="xs">
            <Button type="submit" loading={make.isPending}>
              {t("Make the queue")}
            </Button>
            <Button component={Link} to="/annotate" variant="subtle" color="gray">
              {t("Cancel")}
            </Button>
            {fields.question !== "spans" && (
              <Text size="xs" className="dim">
                {t("Where no answers are known there are no gold checks.")}
              </Text>
            )}
          </Group>
        </Stack>
      </form>
    </Paper>
  );
}

/** "helpfulness" is helpfulness from 1 to 5. */
function scaleOf(text: string): Schemas["AskedScale"] {
  const [, aspect, low, high] = SCALE.exec(text) ?? [null, text, 1, 5];
  return { aspect: String(aspect), low: Number(low), high: Number(high) };
}

function scaleText(text: string): string {
  const { aspect, low, high } = scaleOf(text.trim());
  return `${aspect}:${low}-${high}`;
}
