import { Text } from "@mantine/core";
import { useEffect, useRef } from "react";

import { t } from "../../i18n";

/** What a command wrote, as a terminal would show it; it stays at its end while that is in view. */
export function JobLog({ text, cut }: { text: string; cut: boolean }) {
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  useEffect(() => {
    const element = box.current;
    if (element !== null && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [text]);
  return (
    <>
      {cut && (
        <Text size="xs" className="dim">
          {t("Only the end is shown.")}
        </Text>
      )}
      <pre
        ref={box}
        className="job-log"
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- what scrolls must be reachable to be scrolled
        tabIndex={0}
        role="log"
        aria-label={t("Output of the command")}
        onScroll={({ currentTarget }) => (atEnd.current = currentTarget.scrollHeight - currentTarget.scrollTop - currentTarget.clientHeight < 24)}
      >
        {asShown(text)}
      </pre>
    </>
  );
}

/** A line that was written over, as those of progress bars, in its last state. */
export function asShown(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .split("\n")
    .map((line) => line.split("\r").findLast((part) => part !== "") ?? "")
    .join("\n")
    .trimEnd();
}
