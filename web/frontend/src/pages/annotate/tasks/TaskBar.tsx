import { Button, Group, Textarea } from "@mantine/core";
import type { ReactNode } from "react";

import type { TaskProps } from "./task";

interface TaskBarProps extends Pick<TaskProps, "draft" | "change" | "press" | "disabled" | "writing" | "box"> {
  /** Whether the answer is complete. */
  ready: boolean;
  onStore: () => void;
  /** What is still missing, or nothing. */
  hint: string;
  children?: ReactNode;
}

/** Below a response: the question's own controls, then store, back, skip and a rationale. It stays in view. */
export function TaskBar({ draft, change, press, disabled, writing, box, ready, onStore, hint, children }: TaskBarProps) {
  return (
    <div className="panel session-bar" role="group" aria-label="Decision">
      {(writing || draft.rationale !== "") && (
        <Textarea
          ref={box}
          label="Rationale"
          description="Kept in this browser until the answer is stored. Escape: back to the keys."
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
      {children}
      <Group gap="xs" mt={6}>
        <Button color="teal" disabled={disabled || !ready} onClick={onStore} rightSection={<kbd aria-hidden>Enter</kbd>}>
          Store
        </Button>
        <Button variant="light" color="gray" disabled={disabled} onClick={() => press("s")} rightSection={<kbd aria-hidden>s</kbd>}>
          Skip
        </Button>
        {!writing && draft.rationale === "" && (
          <Button variant="subtle" color="gray" disabled={disabled} onClick={() => press("r")} rightSection={<kbd aria-hidden>r</kbd>}>
            Rationale
          </Button>
        )}
        <span className="dim" role="status">
          {hint}
        </span>
      </Group>
    </div>
  );
}
