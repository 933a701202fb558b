import { Badge, Code, Table, Text, Title } from "@mantine/core";
import { Trans } from "react-i18next";

import type { Schemas } from "../../../api/client";
import { Wide } from "../../../components/Wide";
import { figure } from "../../../format/figure";
import { t, textKey } from "../../../i18n";
import { KindBadge } from "../quality/KindBadge";
import { ShareBar } from "../shared/ShareBar";

type SourceWorth = Schemas["SourceWorth"];

const COLOURS: Record<SourceWorth["worth"], string> = { sound: "teal", adversarial: "red", chance: "yellow", unmeasured: "gray" };

const NAMES: Record<SourceWorth["worth"], string> = {
  sound: textKey("sound"),
  adversarial: textKey("adversarial"),
  chance: textKey("chance"),
  unmeasured: textKey("unmeasured"),
};

/** What each source's, judge's and person's labels are worth on gold, and what they then weigh. */
export function WorthTable({ worth }: { worth: SourceWorth[] }) {
  return (
    <div className="panel">
      <Title order={2} mb={4}>{t("What labels are worth")}</Title>
      <Wide label={t("What labels are worth")}>
        <Table highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>{t("Whose")}</Table.Th>
              <Table.Th>{t("Worth")}</Table.Th>
              <Table.Th ta="right">{t("Weight")}</Table.Th>
              <Table.Th>{t("Right on gold")}</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {worth.map((one) => (
              <Table.Tr key={`${one.kind} ${one.name} ${one.category ?? ""}`}>
                <Table.Th scope="row" fw={500} pl={one.category === null ? undefined : 28}>
                  <div className="curate-name">
                    {one.category ?? one.name} {one.category === null && <KindBadge kind={one.kind} />}
                  </div>
                </Table.Th>
                <Table.Td>
                  <Badge size="xs" radius="sm" variant="light" color={COLOURS[one.worth]}>
                    {t(NAMES[one.worth])}
                  </Badge>
                </Table.Td>
                <Table.Td className="curate-number">{figure(one.weight, 2)}</Table.Td>
                <Table.Td>
                  <ShareBar share={one.right} reference={0.5} fault="below" />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Wide>
      <Text size="xs" className="dim">
        <Trans
          i18nKey="The share that is right as it is to be expected, with its 95 % interval (a Beta posterior). Weight: of a label of this source alone after <code>assay curate sources</code>; labels of an adversarial source are turned round, those of a source at chance are discarded."
          components={{ code: <Code /> }}
        />
      </Text>
    </div>
  );
}
