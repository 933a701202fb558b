import { Code, Select, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count, counted } from "../../../format/count";
import { determined, figure } from "../../../format/figure";
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
      <Empty title="The store holds no scores">
        <Code>assay score responses.jsonl --model NAME --save</Code>
      </Empty>
    );
  return (
    <Stack gap="sm">
      <Select
        label="Scores of"
        data={models.map((one) => ({
          value: keyOf(one),
          label: `${one.model} ${short(one.version)}${one.principle ? ` by “${one.principle}”` : ""}, ${counted(one.scored, "response")}`,
        }))}
        value={keyOf(model)}
        onChange={(key) => key !== null && setSearch({ model: key }, { replace: true })}
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
      <Wide label="Figures of length bias">
        <Table withTableBorder maw={860}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Over responses</Table.Th>
              <Table.Th ta="right">Value</Table.Th>
              <Table.Th ta="right">95 %</Table.Th>
              <Table.Th ta="right">Responses</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            <Row name="Correlation of reward and characters" of={page.overall} />
            <Row name="The same within prompts" of={page.within_prompt} />
            <Row name="Reward per 100 characters, within prompts" of={page.slope} digits={4} />
          </Table.Tbody>
          {page.labelled !== null && (
            <>
              <Table.Thead>
                <Table.Tr>
                  <Table.Th>Over labelled pairs</Table.Th>
                  <Table.Th ta="right">Value</Table.Th>
                  <Table.Th ta="right">95 %</Table.Th>
                  <Table.Th ta="right">Pairs</Table.Th>
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                <Row name="Correlation within prompts, given the label" of={page.labelled.given_label} />
                <Row name="The model prefers the longer side" of={page.labelled.longer_wins} />
                <Row name="The label prefers the longer side" of={page.labelled.longer_chosen} />
                <Row name="Accuracy where the chosen side is longer" of={page.labelled.chosen_longer} />
                <Row name="Accuracy where the chosen side is shorter" of={page.labelled.chosen_shorter} />
                <Row name="Accuracy where both are equally long" of={page.labelled.equal} />
              </Table.Tbody>
            </>
          )}
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {page.responses < page.total
          ? `A sample of ${count(page.responses)} of ${count(page.total)} scored responses, drawn by hash. `
          : `All ${count(page.total)} scored responses. `}
        {model.failed > 0 && `${counted(model.failed, "failed score")} left out. `}
        {page.labelled !== null &&
          page.labelled.pairs < page.labelled.total &&
          `Pairs: a sample of ${count(page.labelled.pairs)} of ${count(page.labelled.total)}. `}
        Intervals by prompt. Length is of the response alone.
      </Text>
      {page.labelled === null && (
        <Text size="sm">
          No labelled pair of the store has scores of both its sides. <Code>assay data import PAIRS.jsonl</Code> and{" "}
          <Code>assay score PAIRS.jsonl --model {model.model} --save</Code> make them.
        </Text>
      )}
      <div>
        <Title order={3}>In tokens, and taking it off</Title>
        <Text size="sm">
          Stored scores do not hold the tokens of the response alone. <Code>assay length-bias --model {model.model} --data GOLD</Code>{" "}
          measures in tokens, and fits a correction.
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
      <Table.Td ta="right">{of === null ? "nothing varies" : figure(of.value, digits)}</Table.Td>
      <Table.Td ta="right">{of === null ? "" : determined(of.low, of.high, digits)}</Table.Td>
      <Table.Td ta="right">{of === null ? "" : count(of.count)}</Table.Td>
    </Table.Tr>
  );
}
