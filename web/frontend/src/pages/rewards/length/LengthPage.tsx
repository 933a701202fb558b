import { Code, Select, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { StartHere } from "../../../components/StartHere";
import { Empty, Failure, Waiting } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { determined, figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { short } from "../format";
import { LengthChart } from "./LengthChart";

type Model = Schemas["ScoredModel"];
type Page = Schemas["LengthPage"];
type Estimate = Schemas["LengthEstimate"];

function keyOf(model: Model): string {
  return `${model.version} ${model.template_hash} ${model.principle}`;
}

/** Whether a model's stored rewards follow the length of what they reward. */
export function LengthPage() {
  const [search, setSearch] = useSearchParams();
  const scored = useQuery({ queryKey: ["rewards", "scored"], queryFn: () => body(api.GET("/api/rewards/scored")) });
  const models = scored.data?.models.filter((model) => model.scored > 0) ?? [];
  const model = models.find((one) => keyOf(one) === search.get("model")) ?? models[0];
  const bias = useQuery({
    queryKey: ["rewards", "length", model && keyOf(model)],
    queryFn: () =>
      body(
        api.GET("/api/rewards/length", {
          params: { query: { version: model!.version, template_hash: model!.template_hash, principle: model!.principle } },
        }),
      ),
    enabled: model !== undefined,
  });
  if (scored.data === undefined) return scored.failureReason === null ? <Waiting /> : <Failure error={scored.failureReason} />;
  if (model === undefined)
    return (
      <Empty title={t("The store holds no scores")}>
        {t("Score the responses of a file, and keep the scores.")}
        <StartHere actions={[["/jobs/new/score?save=true", t("Score responses")], ["/data/import", t("Upload a file")]]} />
      </Empty>
    );
  return (
    <Stack gap="sm">
      <Select
        label={t("Scores of")}
        data={models.map((one) => ({
          value: keyOf(one),
          label: `${one.model} ${short(one.version)}${one.principle ? t(" by “{{principle}}”", { principle: one.principle }) : ""}, ${t("{{count}} responses", { count: one.scored })}`,
        }))}
        value={keyOf(model)}
        onChange={(key) => key !== null && setSearch({ model: key })}
        allowDeselect={false}
        searchable
        maw={620}
      />
      {bias.data === undefined ? bias.failureReason === null ? <Waiting /> : <Failure error={bias.failureReason} /> : <Figures page={bias.data} model={model} />}
    </Stack>
  );
}

function Figures({ page, model }: { page: Page; model: Model }) {
  return (
    <Stack gap="sm">
      <div className="panel">
        <LengthChart page={page} model={model.model} />
      </div>
      <Wide label={t("Figures of length bias")}>
        <Table withTableBorder maw={860}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Over responses")}</Table.Th>
              <Table.Th ta="right">{t("Value")}</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
              <Table.Th ta="right">{t("Responses")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            <Row name={t("Correlation of reward and characters")} of={page.overall} />
            <Row name={t("The same within prompts")} of={page.within_prompt} />
            <Row name={t("Reward per 100 characters, within prompts")} of={page.slope} digits={4} />
          </Table.Tbody>
          {page.labelled !== null && (
            <>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>{t("Over labelled pairs")}</Table.Th>
                  <Table.Th ta="right">{t("Value")}</Table.Th>
                  <Table.Th ta="right">95 %</Table.Th>
                  <Table.Th ta="right">{t("Pairs")}</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                <Row name={t("Correlation within prompts, given the label")} of={page.labelled.given_label} />
                <Row name={t("The model prefers the longer side")} of={page.labelled.longer_wins} />
                <Row name={t("The label prefers the longer side")} of={page.labelled.longer_chosen} />
                <Row name={t("Accuracy where the chosen side is longer")} of={page.labelled.chosen_longer} />
                <Row name={t("Accuracy where the chosen side is shorter")} of={page.labelled.chosen_shorter} />
                <Row name={t("Accuracy where both are equally long")} of={page.labelled.equal} />
              </Table.Tbody>
            </>
          )}
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {page.responses < page.total
          ? t("A sample of {{responses}} of {{total}} scored responses, drawn by hash. ", { responses: count(page.responses), total: count(page.total) })
          : t("All {{total}} scored responses. ", { total: count(page.total) })}
        {model.failed > 0 && t("{{scores}} left out. ", { scores: t("{{count}} failed scores", { count: model.failed }) })}
        {page.labelled !== null &&
          page.labelled.pairs < page.labelled.total &&
          t("Pairs: a sample of {{pairs}} of {{total}}. ", { pairs: count(page.labelled.pairs), total: count(page.labelled.total) })}
        {t("Intervals by prompt. Length is of the response alone.")}
      </Text>
      {page.labelled === null && (
        <Text size="sm">
          <Trans
            i18nKey={"No labelled pair of the store has scores of both its sides. <code>assay data import PAIRS.jsonl</code> and <code2>assay score PAIRS.jsonl --model {{model}} --save</code2> make them."}
            values={{ model: model.model }}
            components={{ code: <Code />, code2: <Code /> }}
          />
        </Text>
      )}
      <div>
        <Title order={3}>{t("In tokens, and taking it off")}</Title>
        <Text size="sm">
          <Trans
            i18nKey={"Stored scores do not hold the tokens of the response alone. <code>assay length-bias --model {{model}} --data GOLD</code> measures in tokens, and fits a correction."}
            values={{ model: model.model }}
            components={{ code: <Code /> }}
          />
        </Text>
      </div>
    </Stack>
  );
}

function Row({ name, of, digits = 3 }: { name: string; of: Estimate | null; digits?: number }) {
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={400}>
        {name}
      </Table.Th>
      <Table.Td ta="right">{of === null ? t("nothing varies") : figure(of.value, digits)}</Table.Td>
      <Table.Td ta="right">{of === null ? "" : determined(of.low, of.high, digits)}</Table.Td>
      <Table.Td ta="right">{of === null ? "" : count(of.count)}</Table.Td>
    </Table.Tr>
  );
}
