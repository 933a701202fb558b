import { Button, Group, SegmentedControl, type ButtonProps } from "@mantine/core";
import type { RefObject } from "react";

import { t } from "../../../i18n";
import type { Draft } from "../drafts";
import { numberKey, optionKey, SESSION, type Action } from "../keys/actions";
import { Key } from "../keys/Key";
import { useKeymap } from "../keys/keymap";
import { useWords } from "../words";
import { Rationale } from "../Rationale";

interface DecisionBarProps {
  draft: Draft;
  change: (part: Partial<Draft>) => void;
  /** Does what the action's key does, for somebody who clicks. */
  press: (action: Action) => void;
  /** While a vote waits for the server; not for the moment that it usually takes. */
  disabled: boolean;
  writing: boolean;
  box: RefObject<HTMLTextAreaElement | null>;
}

/** What can be decided, each with its key. It stays in view below long responses. */
export function DecisionBar({ draft, change, press, disabled, writing, box }: DecisionBarProps) {
  const words = useWords();
  const keymap = useKeymap();
  const decision = (action: Action, label: string, look: ButtonProps = {}) => (
    <Button
      key={action.id}
      variant="light"
      color="gray"
      {...look}
      disabled={disabled}
      aria-keyshortcuts={keymap.label(action)}
      onClick={() => press(action)}
      rightSection={<Key of={action} />}
    >
      {label}
    </Button>
  );
  return (
    <div className="panel session-bar" role="group" aria-label={t("Decision")}>
      {(writing || draft.rationale !== "") && <Rationale value={draft.rationale} onChange={(rationale) => change({ rationale })} disabled={disabled} box={box} />}
      <div className="session-decisions">
        {words.choices.map((choice) =>
          decision(optionKey("choice", choice), t(choice.label), choice.name === "first" || choice.name === "second" ? { variant: "filled", color: "teal" } : {}),
        )}
        {decision(SESSION.skip, t("Skip"))}
      </div>
      <Group gap="xs" mt={6} wrap="nowrap">
        <SegmentedControl
          aria-label={t("How much better")}
          disabled={disabled}
          value={draft.strength === null ? "" : String(draft.strength)}
          onChange={(value) => change({ strength: Number(value) })}
          data={words.strengths.map((word, number) => ({
            value: String(number),
            label: (
              <span>
                {t(word)} <Key of={numberKey(number)} />
              </span>
            ),
          }))}
        />
        {!writing && draft.rationale === "" && decision(SESSION.rationale, t("Rationale"), { variant: "subtle" })}
      </Group>
    </div>
  );
}
