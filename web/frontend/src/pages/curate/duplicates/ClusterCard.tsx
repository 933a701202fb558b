import { Badge, Collapse, Group, Stack, Text, UnstyledButton } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useId } from "react";

import type { Schemas } from "../../../api/client";
import { clipped } from "../../../format/clipped";
import { figure } from "../../../format/figure";
import { t } from "../../../i18n";
import { PairCard } from "../shared/PairCard";

type Cluster = Schemas["DuplicateCluster"];
type Member = Schemas["DuplicateMember"];

/** A cluster by the text of what is kept of it; its members when opened. */
export function ClusterCard({ cluster }: { cluster: Cluster }) {
  const [opened, { toggle }] = useDisclosure();
  const id = useId();
  const first = cluster.members[0]?.pair;
  const Mark = opened ? IconChevronDown : IconChevronRight;
  const opposite = cluster.members.filter((one) => isOpposite(one, cluster)).length;
  return (
    <div className="panel">
      <UnstyledButton onClick={toggle} aria-expanded={opened} aria-controls={id} w="100%">
        <Group gap={6} wrap="nowrap" align="start">
          <Mark size={16} aria-hidden style={{ flexShrink: 0, marginTop: 2 }} />
          <Text size="sm" fw={500} style={{ flex: 1, minWidth: 0, overflowWrap: "anywhere" }}>
            {clipped((first?.prompt[first.prompt.length - 1]?.content ?? cluster.cluster_id).replace(/\s+/g, " "), 160)}
          </Text>
          <Text size="xs" className="dim" style={{ whiteSpace: "nowrap" }}>
            {t("{{members}}, from {{lowest}}", { members: t("{{count}} members", { count: cluster.size }), lowest: figure(cluster.lowest, 2) })}
          </Text>
        </Group>
      </UnstyledButton>
      {opposite > 0 && (
        <Text size="xs" pl={22}>
          {t("{{members}} with the opposite label", { members: t("{{count}} members", { count: opposite }) })}
        </Text>
      )}
      <Collapse expanded={opened} id={id}>
        {opened && (
          <Stack gap="xs" mt="xs">
            {cluster.members.map((member) =>
              member.pair === null ? (
                <Text key={member.item_id} size="sm" className="dim">
                  {t("{{item_id}}: no comparison has this prompt", { item_id: member.item_id })}
                </Text>
              ) : (
                <PairCard key={member.item_id} pair={member.pair}>
                  <Said member={member} opposite={isOpposite(member, cluster)} />
                </PairCard>
              ),
            )}
            {cluster.size > cluster.members.length && (
              <Text size="xs" className="dim">
                {t("{{size}} more that are not shown", { size: cluster.size - cluster.members.length })}
              </Text>
            )}
          </Stack>
        )}
      </Collapse>
    </div>
  );
}

function Said({ member, opposite }: { member: Member; opposite: boolean }) {
  return (
    <Group gap={6}>
      {member.kept_id === null ? (
        <Badge size="xs" radius="sm" variant="light" color="teal">{t("kept")}</Badge>
      ) : (
        <Text size="xs" className="dim">
          {t("{{similarity}} similar to the nearest kept", { similarity: figure(member.similarity, 3) })}
          {member.crossed && t(", A here is like B there")}
        </Text>
      )}
      {opposite && (
        <Badge size="xs" radius="sm" variant="light" color="red">{t("opposite label")}</Badge>
      )}
    </Group>
  );
}

/** Labels are compared as the sources gave them: what was discarded as a duplicate has none in force. */
function isOpposite(member: Member, cluster: Cluster): boolean {
  const representative = cluster.members.find((one) => one.item_id === member.kept_id)?.pair;
  const text = sideOf(member.pair);
  const theirs = sideOf(representative ?? null);
  return text !== null && theirs !== null && (text === theirs) === (member.crossed ?? false);
}

function sideOf(pair: Schemas["ShownPair"] | null): "A" | "B" | null {
  const label = pair?.label ?? pair?.source_label;
  return label === "A" || label === "B" ? label : null;
}
