import { Anchor, Badge, Button, CopyButton, Group, SegmentedControl, SimpleGrid, Stack, Text, Title, UnstyledButton } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { IconArrowLeft } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation, useParams } from "react-router";

import { api, body } from "../../../api/client";
import { PoolBadge } from "../../../components/PoolBadge";
import { Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { Lineage } from "../lineage/Lineage";
import { Decisions, Holdings, Origins, Overlaps } from "./History";
import { Judgments } from "./Judgments";
import { Labels } from "./Labels";
import { Neighbours } from "./Neighbours";
import { Attributes, Feedback, PrincipleVotes } from "./Principles";
import { Scores } from "./Scores";
import { Section } from "./Section";
import { Similar } from "./Similar";
import { PromptText, ResponseText, type Form } from "./Texts";

/** One comparison with all that is known of it. */
export function ComparisonPage() {
  const { id = "" } = useParams();
  const state = useLocation().state as { search?: string } | null;
  const [form, setForm] = useLocalStorage<Form>({ key: "assay-text-form", defaultValue: "rendered" });
  const { data, error, failureReason } = useQuery({
    queryKey: ["comparison", id],
    queryFn: () => body(api.GET("/api/comparisons/{comparison_id}", { params: { path: { comparison_id: id } } })),
  });
  const search = state?.search ?? "";
  const list = { pathname: "/data", search, hash: id };
  if (data === undefined) {
    return (
      <Stack gap="sm">
        <Back to={list} />
        {error !== null || failureReason !== null ? <Failure error={error ?? failureReason} /> : <Waiting />}
      </Stack>
    );
  }
  return (
    <Stack gap="sm">
      <Group justify="space-between" gap="xs">
        <Group gap="xs">
          <Back to={list} />
          <Title order={1}>{t("Comparison")}</Title>
          <PoolBadge pool={data.pool} />
          <Badge variant="light" size="sm" color={data.label === null ? "gray" : "green"}>
            {data.label === null ? t("no label") : data.label === "tie" ? t("tie") : t("{{label}} preferred", { label: data.label })}
          </Badge>
        </Group>
        <Group gap="xs">
          <Neighbours id={id} search={search} />
          <SegmentedControl
            aria-label={t("Texts")}
            value={form}
            onChange={(value) => setForm(value as Form)}
            data={[
              { value: "rendered", label: t("Rendered") },
              { value: "plain", label: t("As stored") },
            ]}
          />
        </Group>
      </Group>
      <Ids ids={{ comparison: data.comparison_id, prompt: data.prompt_id, A: data.a.response_id, B: data.b.response_id }} />
      <PromptText turns={data.prompt} form={form} />
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm">
        <ResponseText side="A" text={data.a} label={data.label} form={form} />
        <ResponseText side="B" text={data.b} label={data.label} form={form} />
      </SimpleGrid>
      <Judgments judgments={data.judgments} sourceLabel={data.source_label} />
      <Labels labels={data.labels} rankings={data.rankings} />
      <Decisions decisions={data.decisions} />
      <Scores scores={data.scores} />
      <PrincipleVotes votes={data.principle_votes} />
      <Feedback feedback={data.feedback} checks={data.checks} />
      <Origins origins={data.origins} />
      <Attributes attributes={data.attributes} />
      <Holdings snapshots={data.snapshots} />
      <Overlaps overlaps={data.overlaps} />
      <Similar key={id} id={id} />
      <Section title={t("Lineage")}>
        <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md">
          <Lineage key={`${id} up`} name={id} direction="up" />
          <Lineage key={`${id} down`} name={id} direction="down" />
        </SimpleGrid>
      </Section>
    </Stack>
  );
}

function Back({ to }: { to: { pathname: string; search: string; hash: string } }) {
  return (
    <Button component={Link} to={to} variant="subtle" size="compact-sm" leftSection={<IconArrowLeft size={14} />}>
      {t("List")}
    </Button>
  );
}

/** Each id is copied by a click, and leads to what has the same. */
function Ids({ ids }: { ids: Record<string, string> }) {
  return (
    <Group gap="2px 16px">
      {Object.entries(ids).map(([name, id]) => (
        <Group key={name} gap={4} wrap="nowrap">
          <Anchor component={Link} to={name === "comparison" ? `/data/lineage/${id}` : `/data?id=${id}`} size="xs">
            {name}
          </Anchor>
          <CopyButton value={id}>
            {({ copied, copy }) => (
              <UnstyledButton onClick={copy} aria-label={t("Copy the id of {{name}}", { name })}>
                <Text size="xs" ff="monospace" className="dim">
                  {copied ? t("copied") : `${id.slice(0, 12)}...`}
                </Text>
              </UnstyledButton>
            )}
          </CopyButton>
        </Group>
      ))}
    </Group>
  );
}
