import { Alert, SimpleGrid, Stack, Table, Text } from "@mantine/core";
import { Trans } from "react-i18next";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { determined, figure } from "../../../format/figure";
import { t, textKey } from "../../../i18n";
import { ReliabilityDiagram } from "./ReliabilityDiagram";

type Run = Schemas["ReliabilityEntry"];

const FIGURES = {
  ece: textKey("Calibration error, 10 equal bins"),
  ece_equal_mass: textKey("Calibration error, 10 bins of equal count"),
  rms_error: textKey("Calibration error, root mean square, debiased"),
  brier: textKey("Brier score"),
  nll: textKey("Negative log-likelihood, nats"),
};

/** One run's reliability before and after, with its figures. */
export function ReliabilityRun({ run }: { run: Run }) {
  const after = run.kind === "calibrate" || run.fitted !== null ? t("Calibrated, on folds left out of the fit") : t("By the model's calibration");
  return (
    <Stack gap="sm">
      <Text size="sm">
        {t("{{pairs}} of {{data}}", { pairs: t("{{count}} pairs", { count: run.pairs }), data: run.data })}
        {run.fitted !== null && t("; fitted: {{fitted}}", { fitted: run.fitted })}.
      </Text>
      {run.trained_on && (
        <Alert color="yellow" p={6}>
          {t("The model was trained on these pairs: every metric is biased upwards.")}
        </Alert>
      )}
      {run.notes.map((note) => (
        <Alert key={note} color="yellow" p={6}>
          {note}
        </Alert>
      ))}
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
        <div className="panel">
          <ReliabilityDiagram title={t("Rewards read as log-odds")} bins={run.before.bins} series={1} />
        </div>
        {run.after !== null && (
          <div className="panel">
            <ReliabilityDiagram title={after} bins={run.after.bins} series={0} />
          </div>
        )}
      </SimpleGrid>
      {run.after === null && (
        <Text size="sm" className="dim">
          <Trans
            i18nKey={"The model had no calibration. <code>assay calibrate --model {{model}} --data GOLD</code> fits one."}
            values={{ model: run.model }}
            components={{ code: <code /> }}
          />
        </Text>
      )}
      <Wide label={t("Figures of calibration")}>
        <Table withTableBorder maw={760}>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Figure")}</Table.Th>
              <Table.Th ta="right">{t("Rewards as log-odds")}</Table.Th>
              <Table.Th ta="right">{run.after === null ? "" : t("Calibrated")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {run.before.figures.map((before) => {
              const calibrated = run.after?.figures.find(({ name }) => name === before.name);
              return (
                <Table.Tr key={before.name}>
                  <Table.Th scope="row" fw={400}>
                    {t(FIGURES[before.name] ?? before.name)}
                  </Table.Th>
                  <Table.Td ta="right">
                    {figure(before.value, 4)} <Bounds of={before} />
                  </Table.Td>
                  <Table.Td ta="right">
                    {calibrated !== undefined && (
                      <>
                        {figure(calibrated.value, 4)} <Bounds of={calibrated} />
                      </>
                    )}
                  </Table.Td>
                </Table.Tr>
              );
            })}
          </Table.Tbody>
        </Table>
      </Wide>
      {Object.keys(run.nll_by_method).length > 0 && (
        <Text size="xs" className="dim">
          {t("Likelihood on left-out folds by method:")}{" "}
          {Object.entries(run.nll_by_method)
            .map(([method, nll]) => `${method} ${figure(nll, 4)}`)
            .join(", ")}
          .
        </Text>
      )}
    </Stack>
  );
}

function Bounds({ of }: { of: Schemas["ReliabilityFigure"] }) {
  return (
    <Text span size="xs" className="dim">
      {of.measured ? determined(of.low, of.high, 4) : t("no interval")}
    </Text>
  );
}
