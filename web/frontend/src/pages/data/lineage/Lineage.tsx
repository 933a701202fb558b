import { ActionIcon, Anchor, Button, Group, Text, Title } from "@mantine/core";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";

import { api, body, type Schemas } from "../../../api/client";
import { Failure, Waiting } from "../../../components/States";
import { count } from "../../../format/count";
import { t } from "../../../i18n";

type Node = Schemas["LineageNode"];
export type Direction = "up" | "down";

const WIDTH = 10;
const WIDEST = 200;

/** What something came from, or led to: a step at a time, each opened when it is asked for. */
export function Lineage({ name, direction }: { name: string; direction: Direction }) {
  return (
    <div>
      <Title order={3} mb={4}>
        {direction === "up" ? t("Came from") : t("Led to")}
      </Title>
      <Branches name={name} direction={direction} above={[name]} />
    </div>
  );
}

interface BranchesProps {
  name: string;
  direction: Direction;
  /** The ids on the way here: one that comes again is not opened again. */
  above: string[];
}

function Branches({ name, direction, above }: BranchesProps) {
  const [width, setWidth] = useState(WIDTH);
  const { data, error, failureReason, isPlaceholderData } = useQuery({
    queryKey: ["lineage", name, direction, width],
    queryFn: () => body(api.GET("/api/lineage/{name}", { params: { path: { name }, query: { direction, depth: 1, width } } })),
    placeholderData: (before) => before,
    staleTime: 60_000,
  });
  if (data === undefined) return error !== null || failureReason !== null ? <Failure error={error ?? failureReason} /> : <Waiting />;
  if (data.branches.length === 0) {
    return (
      <Text size="sm" className="dim">
        {direction === "up" ? t("Nothing further is recorded.") : t("Nothing has come of it yet.")}
      </Text>
    );
  }
  return (
    <ul className="lineage">
      {data.branches.map((branch) => (
        <li key={branch.relation}>
          <Text size="xs" className="dim">
            {branch.relation}
          </Text>
          <ul className="lineage">
            {branch.nodes.map((node) => (
              <Item key={node.id} node={node} direction={direction} above={above} />
            ))}
            {branch.more > 0 && (
              <li>
                {width < WIDEST ? (
                  <Button variant="subtle" size="compact-xs" loading={isPlaceholderData} onClick={() => setWidth(WIDEST)}>
                    {t("{{more}} more", { more: count(branch.more) })}
                  </Button>
                ) : (
                  <Text size="xs" className="dim">{t("{{more}} more", { more: count(branch.more) })}</Text>
                )}
              </li>
            )}
          </ul>
        </li>
      ))}
    </ul>
  );
}

function Item({ node, direction, above }: { node: Node; direction: Direction; above: string[] }) {
  const [opened, setOpened] = useState(false);
  const again = above.includes(node.id);
  return (
    <li>
      <Group gap={4} wrap="nowrap" align="start">
        <ActionIcon
          variant="subtle"
          color="gray"
          size={20}
          disabled={again}
          aria-expanded={opened}
          aria-label={`${opened ? t("Close") : t("Open")} ${node.id}`}
          onClick={() => setOpened(!opened)}
        >
          {opened ? <IconChevronDown size={14} /> : <IconChevronRight size={14} />}
        </ActionIcon>
        <Group gap="0 8px" style={{ overflowWrap: "anywhere" }}>
          <Anchor component={Link} to={pageOf(node)} size="sm">
            {node.about || node.id}
          </Anchor>
          <Text size="xs" className="dim" ff="monospace" title={node.id}>
            {node.id.length > 26 && node.kind !== "file" ? `${node.id.slice(0, 12)}...` : node.id}
          </Text>
        </Group>
      </Group>
      {opened && <Branches name={node.id} direction={direction} above={[...above, node.id]} />}
    </li>
  );
}

/** What has a page of its own is shown there; everything has a lineage. */
function pageOf(node: Node): string {
  if (node.kind === "comparison") return `/data/comparisons/${node.id}`;
  if (node.kind === "run") return `/runs/${node.id}`;
  return `/data/lineage/${encodeURIComponent(node.id)}`;
}
