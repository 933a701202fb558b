import { ActionIcon, Group, Text, Tooltip } from "@mantine/core";
import { IconArrowsMaximize, IconArrowsMinimize } from "@tabler/icons-react";
import { useCallback, useLayoutEffect, useRef, useState } from "react";

import { Messages } from "../../../components/Messages";
import type { Item } from "../words";

/** The conversation, at its last turn: what the responses answer. */
export function PromptPanel({ item, plain }: { item: Item; plain: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [expanded, setWhole] = useState(false);
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
  return (
    <section className="panel" aria-label="Prompt">
      <Group justify="space-between" mb={4} wrap="nowrap">
        <Text size="xs" className="dim" fw={600}>
          Prompt{several && `, ${item.prompt.length} turns`}
        </Text>
        {(overflows || expanded) && (
          <Tooltip label={expanded ? "Show its end" : "Show all of it"}>
            <ActionIcon
              size="sm"
              variant="subtle"
              color="gray"
              aria-label={expanded ? "Show the prompt's end" : "Show the whole prompt"}
              onClick={() => setWhole(!expanded)}
            >
              {expanded ? <IconArrowsMinimize size={14} /> : <IconArrowsMaximize size={14} />}
            </ActionIcon>
          </Tooltip>
        )}
      </Group>
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- it scrolls, also from the keyboard */}
      <div ref={box} className="session-prompt" data-whole={expanded || undefined} tabIndex={0} role="group" aria-label="Conversation" onLoadCapture={settle}>
        <Messages turns={item.prompt} plain={plain} expected="user" />
      </div>
    </section>
  );
}
