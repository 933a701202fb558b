import { Button, Group } from "@mantine/core";
import type { ReactNode } from "react";

import { t } from "../../../i18n";
import { SESSION, TASK } from "../keys/actions";
import { Key } from "../keys/Key";
import { Rationale } from "../Rationale";
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
    <div className="panel session-bar" role="group" aria-label={t("Decision")}>
      {(writing || draft.rationale !== "") && <Rationale value={draft.rationale} onChange={(rationale) => change({ rationale })} disabled={disabled} box={box} />}
      {children}
      <Group gap="xs" mt={6}>
        <Button color="teal" disabled={disabled || !ready} onClick={onStore} rightSection={<Key of={TASK.store} />}>
          {t("Store")}
        </Button>
        <Button variant="light" color="gray" disabled={disabled} onClick={() => press(SESSION.skip)} rightSection={<Key of={SESSION.skip} />}>
          {t("Skip")}
        </Button>
        {!writing && draft.rationale === "" && (
          <Button variant="subtle" color="gray" disabled={disabled} onClick={() => press(SESSION.rationale)} rightSection={<Key of={SESSION.rationale} />}>
            {t("Rationale")}
          </Button>
        )}
        <span className="dim" role="status">
          {hint}
        </span>
      </Group>
    </div>
  );
}
