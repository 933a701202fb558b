import { Group, Text } from "@mantine/core";
import type { ReactNode } from "react";

import { ResponseTurns, type Turn } from "../../../components/Messages";
import { t } from "../../../i18n";

interface ResponseTextProps {
  /** Of one response among several. */
  letter?: string;
  text: string;
  turns: Turn[] | null | undefined;
  plain: boolean;
  /** The text in the form in which it is marked. */
  children?: ReactNode;
}

/** One response; with children, these in place of its text, and below its turns where it is more than text. */
export function ResponseText({ letter, text, turns, plain, children }: ResponseTextProps) {
  return (
    <section className="panel" aria-label={letter === undefined ? t("Response") : t("Response {{letter}}", { letter })}>
      {letter !== undefined && (
        <Group gap="xs" mb={6}>
          <span className="session-letter" aria-hidden>
            {letter}
          </span>
        </Group>
      )}
      {(children === undefined || turns != null) && <ResponseTurns text={text} turns={turns} plain={plain} />}
      {children !== undefined && turns != null && (
        <Text size="xs" fw={600} className="dim" mt="sm" mb={4}>
          {t("The same as text, to be marked")}
        </Text>
      )}
      {children}
    </section>
  );
}
