import { Anchor, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Trans } from "react-i18next";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Empty } from "../../../components/States";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { percent } from "../../../format/percent";
import { t, textKey } from "../../../i18n";
import { KindBadge } from "../quality/KindBadge";
import { words } from "../shared/figures";
import { Loaded } from "../shared/Loaded";
import { ShareBar } from "../shared/ShareBar";
import { ErrorBars, type Part } from "./ErrorBars";

type Entry = Schemas["LabelErrorsEntry"];

/** What was wrong with the sources' labels, and how annotators err. */
export function ErrorsPage() {
  const query = useQuery({ queryKey: ["curate", "errors"], queryFn: () => body(api.GET("/api/curate/errors")) });
  return (
    <Loaded query={query}>
      {(data) =>
        data.by_rule.length === 0 ? (
          <Empty title={t("Nothing has been decided against the sources yet")}>
            <Trans
              i18nKey="Errors are labels of the sources that a decision contradicts. People decide in a queue under <a>Annotate</a>; constraints, reward models and loops decide under <a2>Stages</a2>: Verify, Consistency, Stage 1 and 2. Cleaning, duplicates and contamination say nothing of labels."
              components={{ a: <Anchor component={Link} to="/annotate" size="sm" />, a2: <Anchor component={Link} to="/curate/stages" size="sm" /> }}
            />
          </Empty>
        ) : (
          <Stack gap="sm">
            <Labels title={t("The source's label, by what decided")} entries={data.by_rule} column={t("Decided")} />
            <Labels title={t("The source's label, by category")} entries={data.by_category} column={t("Category")} />
            {data.annotators.length > 0 && <Annotators annotators={data.annotators} />}
          </Stack>
        )
      }
    </Loaded>
  );
}

function Labels({ title, entries, column }: { title: string; entries: Entry[]; column: string }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>
        {title}
      </Title>
      <Wide label={title}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{column}</Table.Th>
              <Table.Th>{t("Wrong")}</Table.Th>
              <Table.Th ta="right">{t("Confirmed")}</Table.Th>
              <Table.Th ta="right">{t("Other side")}</Table.Th>
              <Table.Th ta="right">{t("A tie instead")}</Table.Th>
              <Table.Th ta="right">{t("Source left it open")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {entries.map(({ counts, wrong }) => (
              <Table.Tr key={counts.name}>
                <Table.Th scope="row" fw={500}>
                  {words(counts.name) || t("without a category")}
                </Table.Th>
                <Table.Td>
                  <ShareBar share={wrong} />
                </Table.Td>
                <Table.Td className="curate-number">{count(counts.decided - counts.flipped - counts.tied)}</Table.Td>
                <Table.Td className="curate-number">{count(counts.flipped)}</Table.Td>
                <Table.Td className="curate-number">{count(counts.tied)}</Table.Td>
                <Table.Td className="curate-number">{count(counts.settled)}</Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {t("Wrong: of comparisons that the source labels A or B, those with another label in force, with a 95 % interval.")}
      </Text>
    </div>
  );
}

const KINDS: { name: string; of: (one: Schemas["AnswerErrors"]) => number; colour: string }[] = [
  { name: "right", of: (one) => one.right, colour: "light-dark(#0b7285, #3bc9db)" },
  { name: textKey("other side"), of: (one) => one.flipped, colour: "light-dark(#c92a2a, #ff8787)" },
  { name: textKey("tie for a side"), of: (one) => one.tie_for_side, colour: "light-dark(#b08900, #ffd43b)" },
  { name: textKey("side for a tie"), of: (one) => one.side_for_tie, colour: "light-dark(#5f3dc4, #b197fc)" },
  { name: "skipped", of: (one) => one.skipped, colour: "light-dark(#868e96, #868e96)" },
];

function Annotators({ annotators }: { annotators: Schemas["AnswerErrors"][] }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("How annotators err on gold")}</Title>
      <Wide label={t("How annotators err on gold")}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Who")}</Table.Th>
              <Table.Th>{t("Kind")}</Table.Th>
              <Table.Th />
              {KINDS.map(({ name, colour }) => (
                <Table.Th key={name} ta="right">
                  <span aria-hidden="true" style={{ display: "inline-block", width: 9, height: 9, background: colour, marginRight: 5 }} />
                  {t(name)}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {annotators.map((one) => (
              <Table.Tr key={`${one.kind} ${one.annotator}`}>
                <Table.Th scope="row" fw={500} maw={260} style={{ whiteSpace: "normal", overflowWrap: "anywhere" }}>
                  {one.annotator}
                </Table.Th>
                <Table.Td>
                  <KindBadge kind={one.kind} />
                </Table.Td>
                <Table.Td>
                  <ErrorBars parts={KINDS.map<Part>(({ of, colour }) => ({ value: of(one), colour }))} />
                </Table.Td>
                {KINDS.map(({ name, of }) => (
                  <Table.Td key={name} className="curate-number">
                    {count(of(one))}{" "}
                    <Text span size="xs" className="dim">
                      {percent(of(one) / one.compared, 0)}
                    </Text>
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        {t("Of the gold comparisons that the annotator answered; its own votes are not held against the gold they made.")}
      </Text>
    </div>
  );
}
