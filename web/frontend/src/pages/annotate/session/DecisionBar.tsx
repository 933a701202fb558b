import { Button, Group, SegmentedControl, Textarea, type ButtonProps } from "@mantine/core";
import type { ReactNode, RefObject } from "react";

import type { Draft } from "../drafts";
import { useWords } from "../words";

interface DecisionBarProps {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  /** Presses a key for somebody who clicks. */
  press: (key: string) => void;
  /** While a vote waits for the server; not for the moment that it usually takes. */
  disabled: boolean;
  writing: boolean;
  box: RefObject<HTMLTextAreaElement | null>;
}

/** What can be decided, each with its key. It stays in view below long responses. */
export function DecisionBar({ draft, change, press, disabled, writing, box }: DecisionBarProps) {
  const words = useWords();
  const decision = (key: string, label: string, look: ButtonProps = {}) => (
    <Button
      key={key}
      variant="light"
      color="gray"
      {...look}
      disabled={disabled}
      aria-keyshortcuts={key}
      onClick={() => press(key)}
      rightSection={<Key>{key}</Key>}
    >
      {label}
    </Button>
  );
  return (
    <div className="panel session-bar" role="group" aria-label="Decision">
      {(writing || draft.rationale !== "") && (
        <Textarea
          ref={box}
          label="Rationale"
          description="Kept in this browser until the vote is stored. Escape: back to the keys."
          autosize
          minRows={1}
          maxRows={5}
          maxLength={20_000}
          mb="xs"
          value={draft.rationale}
          disabled={disabled}
          onChange={(event) => change({ rationale: event.currentTarget.value })}
          onKeyDown={(event) => {
            if (event.key === "Escape" || (event.key === "Enter" && (event.ctrlKey || event.metaKey))) event.currentTarget.blur();
          }}
        />
      )}
      <div className="session-decisions">
        {words.choices.map(({ name, key, label }) =>
          decision(key, label, name === "first" || name === "second" ? { variant: "filled", color: "teal" } : {}),
        )}
        {decision(words.skip.key, "Skip")}
      </div>
      <Group gap="xs" mt={6} wrap="nowrap">
        <SegmentedControl
          aria-label="How much better"
          disabled={disabled}
          value={draft.strength === null ? "" : String(draft.strength)}
          onChange={(value) => change({ strength: Number(value) })}
          data={words.strengths.map((word, number) => ({
            value: String(number),
            label: (
              <span>
                {word} <Key>{String(number)}</Key>
              </span>
            ),
          }))}
        />
        {!writing && draft.rationale === "" && decision("r", "Rationale", { variant: "subtle" })}
      </Group>
    </div>
  );
}

function Key({ children }: { children: ReactNode }) {
  return <kbd aria-hidden>{children}</kbd>;
}
