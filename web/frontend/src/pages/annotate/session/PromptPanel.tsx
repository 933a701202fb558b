import { ActionIcon, Group, Text, Tooltip, UnstyledButton } from "@mantine/core";
import { IconArrowsMaximize, IconArrowsMinimize, IconChevronDown, IconChevronUp } from "@tabler/icons-react";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

import { Messages, type Turn } from "../../../components/Messages";
import { t } from "../../../i18n";
import { SESSION } from "../keys/actions";
import { Key } from "../keys/Key";
import type { Item } from "../words";

interface PromptPanelProps {
  item: Item;
  plain: boolean;
  /** All of it, rather than its end. */
  whole: boolean;
  onWhole: (whole: boolean) => void;
  /** Told when it has gone out of view, and when it is back. */
  onAway: (away: boolean) => void;
}

const HEADER_PX = 44;

/** The conversation, at its last turn: what the responses answer. */
export function PromptPanel({ item, plain, whole, onWhole, onAway }: PromptPanelProps) {
  const panel = useRef<HTMLElement>(null);
  const box = useRef<HTMLDivElement>(null);
  const [overflows, setOverflows] = useState(false);
  const several = item.prompt.length > 1;
  const settle = useCallback(() => {
    const element = box.current;
    if (element === null) return;
    setOverflows(element.scrollHeight > element.clientHeight + 1);
    const turns = element.querySelectorAll<HTMLElement>(".message");
    const lastTurn = turns[turns.length - 1];
    element.scrollTop = lastTurn === undefined || !several ? 0 : lastTurn.offsetTop - element.offsetTop - 24;
  }, [several]);
  useLayoutEffect(settle, [item, plain, settle]);
  useEffect(() => {
    if (panel.current === null || typeof IntersectionObserver === "undefined") return;
    const observer = new IntersectionObserver(([entry]) => onAway(entry !== undefined && !entry.isIntersecting && entry.boundingClientRect.top < HEADER_PX), { rootMargin: `-${HEADER_PX + 40}px 0px 0px 0px` });
    observer.observe(panel.current);
    return () => observer.disconnect();
  }, [onAway]);
  return (
    <section ref={panel} className="panel session-prompt-panel" aria-label={t("Prompt")}>
      <Group justify="space-between" mb={4} wrap="nowrap">
        <Text size="xs" className="dim" fw={600}>
          {several ? t("Prompt, {{count}} turns", { count: item.prompt.length }) : t("Prompt")}
        </Text>
        {(overflows || whole) && (
          <Tooltip label={whole ? t("Show its end") : t("Show all of it")}>
            <ActionIcon size="sm" variant="subtle" color="gray" aria-label={whole ? t("Show the prompt's end") : t("Show the whole prompt")} onClick={() => onWhole(!whole)}>
              {whole ? <IconArrowsMinimize size={14} /> : <IconArrowsMaximize size={14} />}
            </ActionIcon>
          </Tooltip>
        )}
      </Group>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- it scrolls, also from the keyboard */}
      <div ref={box} className="session-prompt" data-whole={whole || undefined} tabIndex={0} role="group" aria-label={t("Conversation")} onLoadCapture={settle}>
        <Messages turns={item.prompt} plain={plain} expected="user" />
      </div>
    </section>
  );
}

interface PinnedPromptProps {
  item: Item;
  plain: boolean;
  opened: boolean;
  onOpen: (opened: boolean) => void;
}

/** The prompt in a line at the top, while the page is scrolled past it; opened over the responses. */
export function PinnedPrompt({ item, plain, opened, onOpen }: PinnedPromptProps) {
  return (
    <div className="session-pin">
      <div className="panel session-pinned" role="region" aria-label={t("Prompt, pinned")}>
        <UnstyledButton className="session-pin-line" aria-expanded={opened} onClick={() => onOpen(!opened)}>
          <Text size="xs" className="dim" fw={600}>
            {t("Prompt")}
          </Text>
          <bdi className="session-pin-text">{lineOf(item.prompt)}</bdi>
          <Key of={SESSION.prompt} />
          {opened ? <IconChevronUp size={14} aria-hidden /> : <IconChevronDown size={14} aria-hidden />}
        </UnstyledButton>
        {opened && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- it scrolls, also from the keyboard
          <div className="session-pin-open" tabIndex={0} role="group" aria-label={t("Conversation")}>
            <Messages turns={item.prompt} plain={plain} expected="user" />
          </div>
        )}
      </div>
    </div>
  );
}

/** What was asked last, as one line. */
function lineOf(prompt: Turn[]): string {
  const last = prompt.at(-1)?.content ?? "";
  const text = typeof last === "string" ? last : last.flatMap((part) => (part.type === "text" ? [part.text] : [])).join(" ");
  return text.slice(0, 2000).replace(/\s+/g, " ").trim() || t("(no text)");
}
