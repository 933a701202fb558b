import { Group, Select, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useState } from "react";

import { Wide } from "../../../components/Wide";
import { figure, interval } from "../../../format/figure";
import { t } from "../../../i18n";
import type { Aggregate, Result } from "./results";

const STYLES = ["concise", "detailed", "markdown"];
const DOMAINS = ["chat", "math", "code", "safety"];
const ALL = "all";

/** RM-Bench: the chosen response's style against the rejected one's, and what easy, normal and hard come to. */
export function StyleMatrix({ results, names }: { results: Result[]; names: string[] }) {
  const [domain, setDomain] = useState(ALL);
  const present = DOMAINS.filter((name) => results.some((result) => find(result, name) !== undefined));
  const without = results.some((result) => find(result, `overall/${STYLES[0]}>${STYLES[0]}`) === undefined);
  const parts = ["safety-refuse", "safety-response"].filter((name) => results.some((result) => find(result, name) !== undefined));
  return (
    <Stack gap={6} component="section" aria-label={t("Style matrix")}>
      <Group justify="space-between">
        <Title order={3}>{t("Substance against style")}</Title>
        <Select
          aria-label={t("Domain")}
          data={[{ value: ALL, label: t("all domains") }, ...present, ...parts]}
          value={domain}
          onChange={(value) => setDomain(value ?? ALL)}
          allowDeselect={false}
          w={160}
        />
      </Group>
      <Text size="xs" className="dim">
        {t("Share of prompts whose chosen response, in the style of the row, scores above the rejected one in the style of the column. Easy: the chosen one is the more styled; hard: the plainer.")}
        {domain === ALL && t(" Cells over all domains are means of the domains' cells.")}
        {domain === ALL && without && t(" A result of an earlier version has no intervals of them: evaluate again to have them.")}
      </Text>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm">
        {results.map((result, index) => (
          <div key={names[index]} className="panel">
            <Matrix name={names[index] ?? ""} result={result} domain={domain} />
          </div>
        ))}
      </SimpleGrid>
    </Stack>
  );
}

function Matrix({ name, result, domain }: { name: string; result: Result; domain: string }) {
  const prefix = domain === ALL ? "" : `${domain}/`;
  return (
    <Stack gap={6}>
      <Text size="sm" fw={600}>
        {name}
      </Text>
      <Wide label={t("Matrix of {{name}}", { name })}>
        <table style={{ borderCollapse: "collapse", width: "100%", minWidth: 300, tableLayout: "fixed", fontSize: 13 }}>
          <caption style={{ position: "absolute", left: -10000 }}>
            {t("{{name}}, {{domain}}: style of the chosen response by style of the rejected one", { name, domain })}
          </caption>
          <thead>
            <tr>
              <th scope="col" style={{ fontWeight: 400, textAlign: "left" }} className="dim">
                {t("chosen")}
              </th>
              {STYLES.map((style) => (
                <th key={style} scope="col" style={{ fontWeight: 400 }} className="dim">
                  {style}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {STYLES.map((row, i) => (
              <tr key={row}>
                <th scope="row" style={{ fontWeight: 400, textAlign: "left", paddingRight: 8 }} className="dim">
                  {row}
                </th>
                {STYLES.map((column, j) => {
                  const cell = domain === ALL ? overallCell(result, row, column) : find(result, `${domain}/${row}>${column}`);
                  return (
                    <td key={column} className="rewards-cell" style={{ background: shade(cell?.value) }}>
                      <div style={{ fontWeight: 600 }}>{figure(cell?.value, 2)}</div>
                      <div style={{ fontSize: 11 }} className="rewards-number">
                        {cell?.low == null ? "" : interval(cell.low, cell.high, 2)}
                      </div>
                      <div style={{ fontSize: 11 }}>{i > j ? t("easy") : i < j ? t("hard") : t("normal")}</div>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </Wide>
      <Text size="sm" component="div">
        {["easy", "normal", "hard"].map((level) => {
          const aggregate = find(result, prefix + level);
          return (
            <span key={level} className="rewards-number" style={{ display: "inline-block", marginRight: 14 }}>
              {level} <b>{figure(aggregate?.value)}</b>{" "}
              <Text span size="xs" className="dim">
                {aggregate?.low == null ? "" : interval(aggregate.low, aggregate.high)}
              </Text>
            </span>
          );
        })}
      </Text>
    </Stack>
  );
}

function find(result: Result, name: string): Aggregate | undefined {
  return result.aggregates.find((one) => one.name === name);
}

/** The mean over the domains that are there. Results of earlier versions do not have it: it is made here, without an interval. */
function overallCell(result: Result, row: string, column: string): Aggregate | undefined {
  const recorded = find(result, `overall/${row}>${column}`);
  if (recorded !== undefined) return recorded;
  const cells = DOMAINS.flatMap((domain) => find(result, `${domain}/${row}>${column}`)?.value ?? []);
  if (cells.length === 0) return undefined;
  return { name: "", value: cells.reduce((sum, value) => sum + value, 0) / cells.length, low: null, high: null, method: null };
}

/** Bluer above a half, more orange below; pale enough for the text on it. */
function shade(value: number | null | undefined): string | undefined {
  if (value == null) return undefined;
  const strength = Math.round(Math.abs(value - 0.5) * 70);
  const colour = value >= 0.5 ? "light-dark(#4dabf7, #1971c2)" : "light-dark(#ffa94d, #d9480f)";
  return `color-mix(in srgb, ${colour} ${strength}%, transparent)`;
}
