import { Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { figure } from "../../../format/figure";
import { duration } from "../../../format/duration";
import { NONE } from "../../../format/none";
import { percent } from "../../../format/percent";
import { t } from "../../../i18n";
import { QueueArea } from "./QueueArea";

/** How well everybody annotates, and how far they agree: for curators. */
export function QueueReport() {
  const { queue = "" } = useParams();
  const { data, failureReason: error } = useQuery({
    queryKey: ["queue-report", queue],
    queryFn: () => body(api.GET("/api/queues/{queue}/report", { params: { path: { queue } } })),
    refetchInterval: 10_000,
  });
  return (
    <QueueArea>
      {data === undefined ? (
        error ? (
          <Failure error={error} />
        ) : (
          <Waiting />
        )
      ) : data.annotators.length === 0 ? (
        <Empty title={t("Nobody has voted here yet")}>{t("Figures come with the first votes.")}</Empty>
      ) : (
        <>
          <Annotators people={data.annotators} />
          {data.labels.length > 0 ? <LabelAgreement labels={data.labels} /> : <AgreementTable report={data.agreement} />}
          {data.principles.length > 0 && <Principles principles={data.principles} />}
        </>
      )}
    </QueueArea>
  );
}

function Annotators({ people }: { people: Schemas["AnnotatorQuality"][] }) {
  return (
    <section className="panel" aria-label={t("Annotators")}>
      <Table.ScrollContainer minWidth={720} type="native" tabIndex={0}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              {[t("Annotator"), t("Votes"), t("Gold checks"), t("As most others"), t("Prefers the first"), t("Median time"), t("Ties"), t("Skips"), t("Passed on"), t("Undone")].map((name) => (
                <Table.Th key={name}>{name}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {people.map((person) => (
              <Table.Tr key={person.annotator}>
                <Table.Td>
                  {person.annotator}
                  {person.flags.map((flag) => (
                    <Text key={flag} size="xs" c="orange">
                      {flag}
                    </Text>
                  ))}
                </Table.Td>
                <Table.Td>{person.votes}</Table.Td>
                <Table.Td>{share(person.passed, person.checks, person.accuracy)}</Table.Td>
                <Table.Td>{share(person.agreed, person.compared, person.agreement)}</Table.Td>
                <Table.Td>{share(person.first, person.preferred, person.first_rate)}</Table.Td>
                <Table.Td>{duration(person.median_seconds)}</Table.Td>
                <Table.Td>{person.ties}</Table.Td>
                <Table.Td>{person.skips}</Table.Td>
                <Table.Td>{person.passed_on}</Table.Td>
                <Table.Td>{person.undone}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      <Text size="xs" className="dim" mt={4}>
        {t("95 % intervals in brackets. What is marked is a reason to talk to somebody, not a verdict: no vote is dropped for it.")}
      </Text>
    </section>
  );
}

function AgreementTable({ report }: { report: Schemas["AgreementReport"] }) {
  const rows: [string, Schemas["AgreementCoefficients"]][] = [
    [t("ties counted"), report.with_ties],
    [t("ties dropped"), report.ties_dropped],
  ];
  return (
    <section className="panel" aria-label={t("Agreement")}>
      <Title order={2} mb={4}>
        {t("Agreement")}
      </Title>
      <Table.ScrollContainer minWidth={560} type="native" tabIndex={0}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              {["", t("Items"), t("Labels"), t("Percent"), t("Cohen's kappa"), t("Fleiss' kappa"), t("Krippendorff's alpha")].map((name) => (
                <Table.Th key={name}>{name}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rows.map(([name, agreement]) => (
              <Table.Tr key={name}>
                <Table.Th scope="row">{name}</Table.Th>
                <Table.Td>{agreement.items}</Table.Td>
                <Table.Td>{agreement.labels}</Table.Td>
                <Table.Td>{estimate(agreement.percent, (share) => percent(share))}</Table.Td>
                <Table.Td>{estimate(agreement.cohen)}</Table.Td>
                <Table.Td>{estimate(agreement.fleiss)}</Table.Td>
                <Table.Td>{estimate(agreement.alpha)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      <Text size="sm" mt={4}>
        {report.with_ties.labels === 0 ? t("No item has two votes yet: nothing to agree on.") : t("{{share}} of the labels are ties.", { share: percent(report.tie_rate, 0) })}
        {report.strength_items > 0 && ` ${t("Strength, ordinal alpha over {{count}} items: {{estimate}}.", { count: report.strength_items, estimate: estimate(report.strength) })}`}
      </Text>
    </section>
  );
}

/** Of ratings, steps, spans and orders: each thing that was asked. */
function LabelAgreement({ labels }: { labels: Schemas["LabelAgreement"][] }) {
  return (
    <section className="panel" aria-label={t("Agreement")}>
      <Title order={2} mb={4}>
        {t("Agreement")}
      </Title>
      <Table.ScrollContainer minWidth={520} type="native" tabIndex={0}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              {["", t("Labels"), t("Asked of two people or more"), t("Percent"), t("Krippendorff's alpha")].map((name) => (
                <Table.Th key={name}>{name}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {labels.map((one) => (
              <Table.Tr key={one.what}>
                <Table.Th scope="row">{one.what}</Table.Th>
                <Table.Td>{one.labels}</Table.Td>
                <Table.Td>{one.items}</Table.Td>
                <Table.Td>{percent(one.percent)}</Table.Td>
                <Table.Td>
                  {estimate(one.alpha)} <span className="dim">{one.metric}</span>
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </section>
  );
}

function Principles({ principles }: { principles: Schemas["PrincipleAgreement"][] }) {
  return (
    <section className="panel" aria-label={t("Principles")}>
      <Title order={2} mb={4}>
        {t("Principles")}
      </Title>
      <Table.ScrollContainer minWidth={560} type="native" tabIndex={0}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              {[t("Principle"), t("Answers"), t("Yes"), t("Responses with two answers or more"), t("Percent"), t("Krippendorff's alpha")].map((name) => (
                <Table.Th key={name}>{name}</Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {principles.map((agreement) => (
              <Table.Tr key={agreement.principle}>
                <Table.Th scope="row">{agreement.principle}</Table.Th>
                <Table.Td>{agreement.answers}</Table.Td>
                <Table.Td>{percent(agreement.yes, 0)}</Table.Td>
                <Table.Td>{agreement.items}</Table.Td>
                <Table.Td>{percent(agreement.percent)}</Table.Td>
                <Table.Td>{figure(agreement.alpha)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
      <Text size="xs" className="dim" mt={4}>
        {t("Alpha is ordinal: no, partly, yes.")}
      </Text>
    </section>
  );
}

function share(part: number, total: number, interval: Schemas["Interval"] | null | undefined): string {
  if (total === 0) return NONE;
  const range = interval == null ? "" : ` (${t("{{low}} to {{high}} %", { low: Math.round(100 * interval.low), high: Math.round(100 * interval.high) })})`;
  return `${t("{{right}} of {{total}}", { right: part, total })}${range}`;
}

function estimate(of: Schemas["CoefficientEstimate"], as = (value: number) => figure(value)): string {
  if (of.value === null) return NONE;
  return of.interval == null ? as(of.value) : `${as(of.value)} (${t("{{low}} to {{high}}", { low: as(of.interval.low), high: as(of.interval.high) })})`;
}
