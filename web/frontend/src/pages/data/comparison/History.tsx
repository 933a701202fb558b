import { Anchor, Code, Table, Text } from "@mantine/core";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { PoolBadge } from "../../../components/PoolBadge";
import { figure } from "../../../format/figure";
import { moment } from "../../../format/moment";
import { NONE } from "../../../format/none";
import { t } from "../../../i18n";
import { Section } from "./Section";

/** What curation concluded through time; the last row is in force. */
export function Decisions({ decisions }: { decisions: Schemas["DecisionRecord"][] }) {
  return (
    <Section title={t("Decisions")}>
      {decisions.length === 0 ? (
        <Text size="sm" className="dim">{t("Nobody has decided yet: its label is the source's own.")}</Text>
      ) : (
        <Table miw={620}>
          <Heads titles={[t("When"), t("Pool"), t("Label"), t("Margin"), t("Iteration"), t("Rule"), t("Reason"), t("Run")]} />
          <Table.Tbody>
            {decisions.map((one, index) => (
              <Table.Tr key={one.decision_id} style={{ verticalAlign: "top" }} className={index < decisions.length - 1 ? "dim" : undefined}>
                <Table.Td style={{ whiteSpace: "nowrap" }}>{moment(one.created_at)}</Table.Td>
                <Table.Td>
                  <PoolBadge pool={one.pool} />
                </Table.Td>
                <Table.Td>{one.label ?? NONE}</Table.Td>
                <Table.Td>{figure(one.margin, 2)}</Table.Td>
                <Table.Td>{one.iteration}</Table.Td>
                <Table.Td>{one.rule}</Table.Td>
                <Table.Td style={{ overflowWrap: "anywhere", minWidth: 180 }}>{one.reason}</Table.Td>
                <Table.Td>
                  <RunLink id={one.run_id} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      )}
    </Section>
  );
}

/** Where the comparison was seen, under which licence. */
export function Origins({ origins }: { origins: Schemas["OriginRecord"][] }) {
  return (
    <Section title={t("Origins")}>
      <Table miw={620}>
        <Heads titles={[t("Source"), t("Record"), t("Category"), t("Language"), t("Licence"), t("Import"), t("Further fields")]} />
        <Table.Tbody>
          {origins.map((one) => (
            <Table.Tr key={`${one.source} ${one.record_id}`} style={{ verticalAlign: "top" }}>
              <Table.Td>{one.source}</Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{one.record_id}</Table.Td>
              <Table.Td>{one.category ?? NONE}</Table.Td>
              <Table.Td>{one.language ?? NONE}</Table.Td>
              <Table.Td style={{ minWidth: 120 }}>{one.license ?? t("not told")}</Table.Td>
              <Table.Td>
                <RunLink id={one.run_id} />
              </Table.Td>
              <Table.Td>{one.meta === null || one.meta === "{}" ? NONE : <Code style={{ overflowWrap: "anywhere" }}>{one.meta}</Code>}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Section>
  );
}

/** Snapshots that training may have read it from. */
export function Holdings({ snapshots }: { snapshots: Schemas["SnapshotHolding"][] }) {
  if (snapshots.length === 0) return null;
  return (
    <Section title={t("Snapshots")}>
      <Table>
        <Heads titles={[t("Snapshot"), t("Pool"), t("Label"), t("Weight")]} />
        <Table.Tbody>
          {snapshots.map((one) => (
            <Table.Tr key={one.snapshot_id}>
              <Table.Td>
                <Anchor component={Link} to={`/data/lineage/${one.snapshot_id}`} size="sm">
                  {one.snapshot}
                </Anchor>
              </Table.Td>
              <Table.Td>
                <PoolBadge pool={one.pool} />
              </Table.Td>
              <Table.Td>{one.label}</Table.Td>
              <Table.Td>{one.weight}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Section>
  );
}

/** Benchmarks that the prompt shares text with. */
export function Overlaps({ overlaps }: { overlaps: Schemas["BenchmarkOverlap"][] }) {
  if (overlaps.length === 0) return null;
  return (
    <Section title={t("Overlap with benchmarks")}>
      <Table>
        <Heads titles={[t("Benchmark"), t("Its prompt"), "n-grams", t("First shared text")]} />
        <Table.Tbody>
          {overlaps.map((one) => (
            <Table.Tr key={`${one.benchmark} ${one.benchmark_prompt_id}`} style={{ verticalAlign: "top" }}>
              <Table.Td>{one.benchmark}</Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{one.benchmark_prompt_id}</Table.Td>
              <Table.Td>{one.ngrams}</Table.Td>
              <Table.Td style={{ overflowWrap: "anywhere" }}>{one.overlap}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Section>
  );
}

function Heads({ titles }: { titles: string[] }) {
  return (
    <Table.Thead>
      <Table.Tr>
        {titles.map((title) => (
          <Table.Th key={title} scope="col">
            {title}
          </Table.Th>
        ))}
      </Table.Tr>
    </Table.Thead>
  );
}

function RunLink({ id }: { id: string | null }) {
  if (id === null) return <>{NONE}</>;
  return (
    <Anchor component={Link} to={`/runs/${id}`} size="xs" ff="monospace">
      {id}
    </Anchor>
  );
}
