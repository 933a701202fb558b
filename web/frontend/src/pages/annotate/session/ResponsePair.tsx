import { Alert, Group, Text } from "@mantine/core";
import { useMemo } from "react";

import { ResponseTurns, type Turn } from "../../../components/Messages";
import { t } from "../../../i18n";
import { wordDiff, type Piece } from "./wordDiff";
import type { Item } from "../words";

export type Look = "rendered" | "plain" | "diff";

/** The two responses, A the one that was drawn to be first; where they come from is not known here. */
export function ResponsePair({ item, look }: { item: Item; look: Look }) {
  const pieces = useMemo(() => (look === "diff" ? wordDiff(item.first, item.second) : null), [item, look]);
  return (
    <>
      {look === "diff" && pieces === null && (
        <Alert color="yellow" p="xs" role="status">
          {t("The two differ in too much to be compared word by word; they are shown as they are written.")}
        </Alert>
      )}
      <div className="session-pair">
        <Response letter="A" text={item.first} turns={item.turns[0]} checked={item.checked?.first} look={look} pieces={pieces?.[0]} />
        <Response letter="B" text={item.second} turns={item.turns[1]} checked={item.checked?.second} look={look} pieces={pieces?.[1]} />
      </div>
    </>
  );
}

interface ResponseProps {
  letter: "A" | "B";
  text: string;
  turns: Turn[] | null | undefined;
  checked: string | undefined;
  look: Look;
  pieces: Piece[] | undefined;
}

function Response({ letter, text, turns, checked, look, pieces }: ResponseProps) {
  const side = letter === "A" ? "first" : "second";
  return (
    <section className="panel" aria-label={t("Response {{letter}}", { letter })}>
      <Group gap="xs" mb={6}>
        <span className="session-letter" aria-hidden>
          {letter}
        </span>
        {checked && (
          <Text size="xs" className="dim">
            {t("checked: {{found}}", { found: checked })}
          </Text>
        )}
      </Group>
      <div data-response={side}>
        {pieces === undefined ? (
          <ResponseTurns text={text} turns={turns} plain={look !== "rendered"} />
        ) : (
          <div className="session-plain" dir="auto">
            {pieces.map((piece, n) =>
              piece.own ? (
                <mark key={n} data-side={side}>
                  {piece.text}
                </mark>
              ) : (
                piece.text
              ),
            )}
          </div>
        )}
      </div>
    </section>
  );
}
