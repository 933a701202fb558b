import { Badge, Collapse, Group, Text, UnstyledButton } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useId, type ReactNode } from "react";

import { t } from "../../../i18n";
import { Guideline } from "../Guideline";
import type { Item } from "../words";

interface SideColumnProps {
  /** What one needs to decide: on a phone it stands before the responses. */
  first: ReactNode;
  /** The rest: on a phone it stands below all else. */
  children: ReactNode;
}

/** What stands beside the texts. */
export function SideColumn({ first, children }: SideColumnProps) {
  return (
    <aside className="session-side" aria-label={t("About this item")}>
      <div className="session-side-first">{first}</div>
      <div className="session-side-rest">{children}</div>
    </aside>
  );
}

/** One titled part of the column, which its reader may fold; the browser remembers it by `name`. `folded`: at first. */
export function Section({ title, name, folded = false, children }: { title: string; name: string; folded?: boolean; children: ReactNode }) {
  const [opened, setOpened] = useLocalStorage({ key: `assay.section:${name}`, defaultValue: !folded, getInitialValueInEffect: false });
  const id = useId();
  const Chevron = opened ? IconChevronDown : IconChevronRight;
  return (
    <section className="panel" aria-label={title}>
      <UnstyledButton className="session-fold" aria-expanded={opened} aria-controls={id} onClick={() => setOpened(!opened)}>
        <Chevron size={12} aria-hidden />
        <Text component="span" size="xs" fw={600} className="dim">
          {title}
        </Text>
      </UnstyledButton>
      <Collapse id={id} expanded={opened} transitionDuration={0}>
        {children}
      </Collapse>
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
        <Section title={t("Guideline")} name="guideline">
          {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- on a phone it scrolls, also from the keyboard */}
          <div className="session-guidelines" tabIndex={0} role="group" aria-label={t("Guideline")}>
            {guidelines.map((text, n) => (
              <Guideline key={n} text={text} />
            ))}
          </div>
        </Section>
      )}
      {(attributes !== null || item.reason !== "") && (
        <Section title={t("About")} name="about" folded={window.matchMedia("(max-width: 62em)").matches}>
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
                  {t("controversiality {{how}}", { how: attributes.controversiality })}
                </Badge>
              </Group>
              <Text size="xs" className="dim">
                {t("Wanted")}
              </Text>
              <Guideline text={attributes.desired} />
            </>
          )}
          {item.reason !== "" && (
            <Text size="sm" className="dim" dir="auto">
              {t("Asked because: {{reason}}", { reason: item.reason })}
            </Text>
          )}
        </Section>
      )}
    </>
  );
}
