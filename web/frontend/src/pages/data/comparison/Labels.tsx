import { Table, Text } from "@mantine/core";
import type { ReactNode } from "react";

import type { Schemas } from "../../../api/client";
import { clipped } from "../../../format/clipped";
import { figure, minus } from "../../../format/figure";
import { moment } from "../../../format/moment";
import { NONE } from "../../../format/none";
import { t } from "../../../i18n";
import { Section } from "./Section";

type Label = Schemas["LabelRecord"];

interface LabelsProps {
  labels: Label[];
  rankings: Schemas["RankingRecord"][];
}

/** What was said of one response, of parts of it, or of more than two; nothing where nothing was. */
export function Labels({ labels, rankings }: LabelsProps) {
  const ratings = labels.filter(({ aspect }) => aspect !== null);
  const steps = labels.filter(({ step }) => step !== null);
  const spans = labels.filter(({ aspect, step }) => aspect === null && step === null);
  return (
    <>
      {ratings.length > 0 && (
        <Section title={t("Ratings")}>
          <LabelTable columns={[t("Response"), t("Aspect"), t("Rating")]}>
            {ratings.map((one) => (
              <Said key={one.judgment_id} label={one}>
                <Table.Td>{one.side}</Table.Td>
                <Table.Td>{one.aspect === "acceptable" ? t("acceptable (yes or no)") : one.aspect}</Table.Td>
                <Table.Td fw={600}>{rated(one)}</Table.Td>
              </Said>
            ))}
          </LabelTable>
        </Section>
      )}
      {steps.length > 0 && (
        <Section title={t("Step labels")}>
          <LabelTable columns={[t("Response"), t("Step"), t("Label"), t("Words")]}>
            {steps.map((one) => (
              <Said key={one.judgment_id} label={one}>
                <Table.Td>{one.side}</Table.Td>
                <Table.Td>{(one.step ?? 0) + 1}</Table.Td>
                <Table.Td fw={600}>{stepLabel(one)}</Table.Td>
                <Words text={one.words} />
              </Said>
            ))}
          </LabelTable>
        </Section>
      )}
      {spans.length > 0 && (
        <Section title={t("Spans")}>
          <LabelTable columns={[t("Response"), t("Label"), t("Words")]}>
            {spans.map((one) => (
              <Said key={one.judgment_id} label={one}>
                <Table.Td>{one.side}</Table.Td>
                <Table.Td fw={600}>{one.label ?? NONE}</Table.Td>
                <Words text={one.words} />
              </Said>
            ))}
          </LabelTable>
        </Section>
      )}
      {rankings.length > 0 && (
        <Section title={t("Rankings")} note={t("of all responses to the prompt that were ranked; 1 is the best")}>
          <Table miw={520}>
            <Head columns={[t("Annotator"), "A", "B", t("Responses"), t("When")]} />
            <Table.Tbody>
              {rankings.map((one) => (
                <Table.Tr key={`${one.annotator} ${one.origin}`}>
                  <Annotator label={one} />
                  <Table.Td fw={600}>{one.place_a}</Table.Td>
                  <Table.Td fw={600}>{one.place_b}</Table.Td>
                  <Table.Td>{one.responses}</Table.Td>
                  <Table.Td style={{ whiteSpace: "nowrap" }}>{moment(one.created_at)}</Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
        </Section>
      )}
    </>
  );
}

function LabelTable({ columns, children }: { columns: string[]; children: ReactNode }) {
  return (
    <Table miw={620}>
      <Head columns={[t("Annotator"), ...columns, t("When"), t("Rationale")]} />
      <Table.Tbody>{children}</Table.Tbody>
    </Table>
  );
}

function Head({ columns }: { columns: string[] }) {
  return (
    <Table.Thead>
      <Table.Tr>
        {columns.map((title) => (
          <Table.Th key={title} scope="col">
            {title}
          </Table.Th>
        ))}
      </Table.Tr>
    </Table.Thead>
  );
}

function Said({ label, children }: { label: Label; children: ReactNode }) {
  return (
    <Table.Tr className={label.withdrawn_at === null ? undefined : "withdrawn"} style={{ verticalAlign: "top" }}>
      <Annotator label={label} />
      {children}
      <Table.Td style={{ whiteSpace: "nowrap" }}>{moment(label.created_at)}</Table.Td>
      <Table.Td className="note" style={{ overflowWrap: "anywhere" }}>
        {label.withdrawn_at !== null && (
          <Text size="sm" fw={600}>
            {t("Taken back {{withdrawn_at}}: {{withdrawn_reason}}", { withdrawn_at: moment(label.withdrawn_at), withdrawn_reason: label.withdrawn_reason })}
          </Text>
        )}
        {label.rationale}
      </Table.Td>
    </Table.Tr>
  );
}

function Annotator({ label }: { label: { annotator: string; kind: string; origin: string } }) {
  return (
    <Table.Td>
      {label.annotator}
      <Text size="xs" className="dim">
        {label.kind.replace("_", " ")}
        {label.origin.startsWith("adjudication") && t(", adjudicator")}
      </Text>
    </Table.Td>
  );
}

function Words({ text }: { text: string | null }) {
  return (
    <Table.Td style={{ overflowWrap: "anywhere", minWidth: 180 }}>
      <q>{clipped(text ?? "", 160)}</q>
    </Table.Td>
  );
}

function rated({ aspect, value, low, high }: Label): string {
  if (value === null) return t("cannot say");
  if (aspect === "acceptable") return value > 0 ? "yes" : "no";
  const scale = low === null || high === null ? "" : t(" ({{low}} to {{high}})", { low: short(low), high: short(high) });
  return `${short(value)}${scale}`;
}

function short(value: number): string {
  return Number.isInteger(value) ? minus(String(value)) : figure(value);
}

/** A label on the scale -1 to 1 in words; a probability as the number it is. */
function stepLabel({ value, low, label }: Label): string {
  if (value === null) return label ?? t("cannot say");
  if (low === -1 && Number.isInteger(value)) return ["wrong", "neutral", "correct"][value + 1] ?? figure(value);
  return figure(value);
}
