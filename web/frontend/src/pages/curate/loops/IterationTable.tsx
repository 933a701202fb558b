import { Anchor, Table, Text } from "@mantine/core";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { NONE } from "../../../format/none";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";

type Loop = Schemas["LoopHistory"];
type Iteration = Schemas["LoopIteration"];

/** What each iteration did: what it trained on, what it looked around, what people and judges made of it. */
export function IterationTable({ loop }: { loop: Loop }) {
  return (
    <Wide label={t("Iterations of {{name}}", { name: loop.name })}>
      <Table>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("Iteration")}</Table.Th>
            <Table.Th ta="right">{t("Trained on")}</Table.Th>
            <Table.Th ta="right">{t("Wrong on gold")}</Table.Th>
            <Table.Th ta="right">{t("To people")}</Table.Th>
            <Table.Th ta="right">{t("Gold")}</Table.Th>
            <Table.Th ta="right">{t("Against source")}</Table.Th>
            <Table.Th ta="right">{t("Left open")}</Table.Th>
            <Table.Th ta="right">{t("To judges")}</Table.Th>
            <Table.Th ta="right">{t("Silver")}</Table.Th>
            <Table.Th ta="right">{t("Against source")}</Table.Th>
            <Table.Th>{t("Steps done")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {loop.iterations.map((one) => (
            <Row key={one.iteration} loop={loop} one={one} />
          ))}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}

function Row({ loop, one }: { loop: Loop; one: Iteration }) {
  const chosen = (one.for_people ?? 0) + (one.for_judges ?? 0);
  const open = (one.undecided ?? 0) + (one.conflicts ?? 0) + (one.people_open ?? 0);
  return (
    <Table.Tr>
      <Table.Th scope="row" fw={500}>
        {one.iteration === 0 ? t("0, the seed") : one.iteration}
        {chosen > 0 && (
          <>
            {" "}
            <Anchor component={Link} to={`/curate/loops/${encodeURIComponent(loop.name)}/${one.iteration}`} size="xs" fw={400}>
              {t("what was asked")}
            </Anchor>
          </>
        )}
      </Table.Th>
      <Table.Td className="curate-number">
        {one.trained_on == null ? NONE : one.left_out ? t("{{trained_on}} of {{all}}", { trained_on: count(one.trained_on), all: count(one.trained_on + one.left_out) }) : count(one.trained_on)}
      </Table.Td>
      <Table.Td className="curate-number">
        {one.gold_wrong == null ? NONE : t("{{gold_wrong}} of {{gold_predicted}}", { gold_wrong: count(one.gold_wrong), gold_predicted: count(one.gold_predicted) })}
      </Table.Td>
      <Number value={one.people_asked ?? one.for_people} />
      <Number value={one.gold} />
      <Against part={one.gold_against_source} whole={one.gold} />
      <Table.Td className="curate-number">{one.people_asked == null ? NONE : count(open)}</Table.Td>
      <Number value={one.judges_asked ?? one.for_judges} />
      <Number value={one.silver} />
      <Against part={one.silver_against_source} whole={one.silver} />
      <Table.Td maw={130} style={{ whiteSpace: "normal" }}>
        <Text size="xs" className="dim">
          {one.steps.map(({ step }) => step).join(", ")}
        </Text>
      </Table.Td>
    </Table.Tr>
  );
}

function Number({ value }: { value: number | null | undefined }) {
  return <Table.Td className="curate-number">{count(value)}</Table.Td>;
}

function Against({ part, whole: total }: { part: number | null; whole: number | null }) {
  return (
    <Table.Td className="curate-number">
      {count(part)}
      {part != null && total != null && total > 0 && (
        <Text span size="xs" className="dim">
          {" "}
          ({percent(part / total, 0)})
        </Text>
      )}
    </Table.Td>
  );
}
