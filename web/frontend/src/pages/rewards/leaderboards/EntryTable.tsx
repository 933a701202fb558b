import { Anchor, Checkbox, Table, Text } from "@mantine/core";
import { Link } from "react-router";

import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { figure, interval } from "../../../format/figure";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { short } from "../format";
import { keyOf, type Entry } from "./results";

/** Every result of the benchmark; the ticked ones are compared below. */
export function EntryTable({ entries, shown: selected, onShow }: { entries: Entry[]; shown: string[]; onShow: (keys: string[]) => void }) {
  return (
    <Wide label={t("Results")}>
      <Table withTableBorder>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("Shown")}</Table.Th>
            <Table.Th>{t("Model")}</Table.Th>
            <Table.Th ta="right">{t("Overall")}</Table.Th>
            <Table.Th ta="right">95 %</Table.Th>
            <Table.Th ta="right">{t("Scored")}</Table.Th>
            <Table.Th ta="right">{t("Failed")}</Table.Th>
            <Table.Th ta="right">{t("Truncated")}</Table.Th>
            <Table.Th>{t("Ties")}</Table.Th>
            <Table.Th>{t("Items")}</Table.Th>
            <Table.Th>{t("Run")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {entries.map((entry) => {
            const key = keyOf(entry);
            const on = selected.includes(key);
            return (
              <Table.Tr key={key}>
                <Table.Td>
                  <Checkbox
                    size="xs"
                    checked={on}
                    disabled={on && selected.length === 1}
                    onChange={() => onShow(on ? selected.filter((other) => other !== key) : [...selected, key])}
                    aria-label={t("Show {{model}} of {{run_id}}", { model: entry.model, run_id: entry.run_id })}
                  />
                </Table.Td>
                <Table.Td>
                  {entry.model}{" "}
                  <Text span size="xs" className="dim">
                    {entry.version === null ? t("recorded scores") : [short(entry.version), entry.read_as].filter(Boolean).join(", ")}
                  </Text>
                </Table.Td>
                <Table.Td ta="right" fw={600}>
                  {figure(entry.headline?.value)}
                  {entry.warnings.map((warning) => (
                    <Text key={warning} size="xs" c="var(--mantine-color-orange-text)">
                      {warning}
                    </Text>
                  ))}
                  {!entry.ranked && (
                    <Text size="xs" c="var(--mantine-color-orange-text)">
                      {t("not ranked")}
                      {entry.failures_wrong !== null && t("; {{failures_wrong}} with failed items as wrong", { failures_wrong: figure(entry.failures_wrong) })}
                    </Text>
                  )}
                  {entry.headline != null && entry.headline.name !== "overall" && (
                    <Text size="xs" className="dim">
                      {entry.headline.name}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td ta="right">{interval(entry.headline?.low, entry.headline?.high)}</Table.Td>
                <Table.Td ta="right">
                  {t("{{scored}} of {{items}}", { scored: count(entry.scored), items: count(entry.items) })}
                </Table.Td>
                <Table.Td ta="right">{count(entry.failed)}</Table.Td>
                <Table.Td ta="right">{count(entry.truncated)}</Table.Td>
                <Table.Td>{entry.ties}</Table.Td>
                <Table.Td>
                  {entry.data ?? t("unknown")}
                  {entry.missing !== null && entry.missing.length > 0 && (
                    <Text size="xs" className="dim">
                      {t("without {{missing}}", { missing: entry.missing.join(", ") })}
                    </Text>
                  )}
                </Table.Td>
                <Table.Td>
                  <Anchor component={Link} to={`/runs/${entry.run_id}`} size="xs">
                    {momentInWords(entry.at)}
                  </Anchor>
                </Table.Td>
              </Table.Tr>
            );
          })}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}
