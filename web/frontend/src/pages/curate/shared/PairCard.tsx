import { Anchor, Collapse, Group, Stack, Text, UnstyledButton } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useId, type ReactNode } from "react";
import { Link } from "react-router";

import type { Schemas } from "../../../api/client";
import { PoolBadge } from "../../../components/PoolBadge";
import { clipped } from "../../../format/clipped";
import { count } from "../../../format/count";
import { t } from "../../../i18n";
import { Clip } from "./Clip";

type Pair = Schemas["ShownPair"];

/** One comparison: its last turn and what is said of it; its texts when opened. */
export function PairCard({ pair, children, open = false }: { pair: Pair; children?: ReactNode; open?: boolean }) {
  const [opened, { toggle }] = useDisclosure(open);
  const id = useId();
  const last = pair.prompt[pair.prompt.length - 1]?.content ?? "";
  const Mark = opened ? IconChevronDown : IconChevronRight;
  return (
    <div className="panel">
      <Group justify="space-between" wrap="nowrap" align="start" gap="xs">
        <UnstyledButton onClick={toggle} aria-expanded={opened} aria-controls={id} style={{ minWidth: 0, flex: 1 }}>
          <Group gap={6} wrap="nowrap" align="start">
            <Mark size={16} aria-hidden style={{ flexShrink: 0, marginTop: 2 }} />
            <Text size="sm" fw={500} style={{ overflowWrap: "anywhere" }}>
              {clipped(last.replace(/\s+/g, " "), 180) || t("(a prompt without text)")}
            </Text>
          </Group>
        </UnstyledButton>
        <Group gap={6} wrap="nowrap">
          <PoolBadge pool={pair.pool} />
          <Anchor component={Link} to={`/data/comparisons/${pair.comparison_id}`} size="xs" style={{ whiteSpace: "nowrap" }}>
            {t("all of it")}
          </Anchor>
        </Group>
      </Group>
      {children}
      <Collapse expanded={opened} id={id}>
        {opened && <Texts pair={pair} />}
      </Collapse>
    </div>
  );
}

function Texts({ pair }: { pair: Pair }) {
  return (
    <Stack gap="xs" mt="xs">
      <Clip className="curate-side" label={t("Prompt")}>
        {pair.prompt.map((turn, index) => (
          <div key={index}>
            <Text size="xs" fw={600} className="dim">
              {turn.role}
            </Text>
            {turn.content}
          </div>
        ))}
      </Clip>
      <div className="curate-pair">
        <Side side="A" pair={pair} text={pair.response_a} characters={pair.characters_a} />
        <Side side="B" pair={pair} text={pair.response_b} characters={pair.characters_b} />
      </div>
    </Stack>
  );
}

function Side({ side, pair, text, characters }: { side: "A" | "B"; pair: Pair; text: string; characters: number }) {
  const labels = [pair.label === side ? t("label in force") : "", pair.source_label === side ? t("source's label") : ""].filter(Boolean);
  return (
    <div className="curate-side" data-chosen={pair.label === side}>
      <Text size="xs" fw={600} className="dim">
        {side}
        {labels.length > 0 && `: ${labels.join(", ")}`}
      </Text>
      <Clip label={t("Response {{side}}", { side })}>
        {text}
        {characters > text.length && <Text size="xs" className="dim">{t("… {{characters}} characters in all", { characters: count(characters) })}</Text>}
      </Clip>
    </div>
  );
}
