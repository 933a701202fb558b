import { ActionIcon, Button } from "@mantine/core";
import { IconX } from "@tabler/icons-react";

import { t } from "../../../i18n";
import type { PrincipleDraft } from "../drafts";
import { ANSWERS, LETTERS } from "./answers";

interface PrincipleRowProps {
  draft: PrincipleDraft;
  disabled: boolean;
  onFocus: () => void;
  change: (change: Partial<PrincipleDraft>) => void;
}

/** Yes, partly or no for one response and principle, and the words that show it. */
export function PrincipleRow({ draft, disabled, onFocus, change }: PrincipleRowProps) {
  const { principle, place: side, answer, evidence } = draft;
  const letter = LETTERS[side];
  return (
    <>
      <div className="principle-row">
        <span className="session-letter" aria-hidden>
          {letter}
        </span>
        <div className="principle-answers" role="radiogroup" aria-label={`${letter}: ${principle}`}>
          {ANSWERS.map((one, n) => {
            const chosen = answer === one.answer;
            return (
              <Button
                key={one.answer}
                size="compact-xs"
                px={4}
                role="radio"
                aria-checked={chosen}
                variant={chosen ? "filled" : "default"}
                tabIndex={chosen || (answer === null && n === 0) ? 0 : -1}
                disabled={disabled}
                onFocus={onFocus}
                onClick={() => change({ answer: chosen ? null : one.answer })}
              >
                {t(one.label)}
              </Button>
            );
          })}
        </div>
      </div>
      {evidence !== null && (
        <div className="evidence">
          <div style={{ flex: 1, minWidth: 0, display: "flex", flexDirection: "column" }}>
            <q dir="auto">{evidence}</q>
            {answer === null && <small>{t("Counts once {{letter}} has an answer.", { letter })}</small>}
          </div>
          <ActionIcon
            size="xs"
            variant="subtle"
            color="gray"
            aria-label={t("Remove the evidence of {{letter}}: {{principle}}", { letter, principle })}
            disabled={disabled}
            onClick={() => change({ evidence: null })}
          >
            <IconX size={12} />
          </ActionIcon>
        </div>
      )}
    </>
  );
}
