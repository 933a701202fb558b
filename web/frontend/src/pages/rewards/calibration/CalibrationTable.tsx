import { Anchor, Table, Text } from "@mantine/core";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { count } from "../../../format/count";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { short } from "../format";

/** Every calibration that was fitted, and how many stored probabilities came from it. */
export function CalibrationTable({ calibrations }: { calibrations: Schemas["CalibrationEntry"][] }) {
  return (
    <Wide label={t("Calibrations")}>
      <Table withTableBorder>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t("Model")}</Table.Th>
            <Table.Th>{t("Calibration")}</Table.Th>
            <Table.Th>{t("Fitted on")}</Table.Th>
            <Table.Th ta="right">{t("Pairs")}</Table.Th>
            <Table.Th ta="right">{t("Stored scores with it")}</Table.Th>
            <Table.Th>{t("When")}</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {calibrations.map((one) => (
            <Table.Tr key={`${one.id} ${one.version}`}>
              <Table.Td>
                {one.model ?? t("unnamed")}{" "}
                <Text span size="xs" className="dim">
                  {short(one.version)}
                </Text>
              </Table.Td>
              <Table.Td>
                {one.described}
                {!one.newest && (
                  <Text span size="xs" className="dim">{t("replaced")}</Text>
                )}
              </Table.Td>
              <Table.Td>{one.fitted_on}</Table.Td>
              <Table.Td ta="right">{count(one.pairs)}</Table.Td>
              <Table.Td ta="right">{count(one.scores)}</Table.Td>
              <Table.Td>
                {one.run_id === null ? (
                  momentInWords(one.at)
                ) : (
                  <Anchor component={Link} to={`/runs/${one.run_id}`} size="sm">
                    {momentInWords(one.at)}
                  </Anchor>
                )}
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Wide>
  );
}
