import { Badge, Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { Guideline } from "../Guideline";
import type { Item } from "../words";

interface SideColumnProps {
  children: ReactNode;
  /** What other people said, for an adjudicator. */
  others?: ReactNode;
  /** Votes on single principles of the two responses. */
  principles?: ReactNode;
}

/** What stands beside the texts. */
export function SideColumn({ children, others: opinions, principles }: SideColumnProps) {
  return (
    <aside className="session-side" aria-label="About this item">
      <Stack gap="xs">
        {opinions}
        {principles}
        {children}
      </Stack>
    </aside>
  );
}

/** One titled part of the column. */
export function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="panel" aria-label={title}>
      <Text size="xs" fw={600} className="dim" mb={2}>
        {title}
      </Text>
      {children}
    </section>
  );
}

/** Why the item is asked, what is known of it, and by what it is to be judged. */
export function About({ item, guideline }: { item: Item; guideline: string }) {
  const { attributes } = item;
  const guidelines = [guideline, attributes?.guideline ?? "", item.guideline].filter((text) => text !== "");
  return (
    <>
      {guidelines.length > 0 && (
        <Section title="Guideline">
          {guidelines.map((text, n) => (
            <Guideline key={n} text={text} />
          ))}
        </Section>
      )}
      {(attributes !== null || item.reason !== "") && (
        <Section title="About">
          {attributes !== null && (
            <>
              <Group gap={4} mb={4}>
                <Badge size="sm" variant="light" tt="none">
                  {attributes.task_category}
                </Badge>
                <Badge size="sm" variant="light" color="gray" tt="none">
                  {attributes.objectivity}
                </Badge>
                <Badge size="sm" variant="light" color="gray" tt="none">
                  controversiality {attributes.controversiality}
                </Badge>
              </Group>
              <Text size="xs" className="dim">
                Wanted
              </Text>
              <Guideline text={attributes.desired} />
            </>
          )}
          {item.reason !== "" && (
            <Text size="sm" className="dim">
              Asked because: {item.reason}
            </Text>
          )}
        </Section>
      )}
    </>
  );
}
