import { Badge } from "@mantine/core";

import { t, textKey } from "../../../i18n";

const NAMES: Record<string, string> = { human: textKey("person"), llm: textKey("language model"), reward_model: textKey("reward model") };

/** What sort of annotator it is. */
export function KindBadge({ kind }: { kind: string }) {
  return (
    <Badge size="xs" radius="sm" variant="light" color={kind === "human" ? "teal" : kind === "source" ? "gray" : "indigo"}>
      {t(NAMES[kind] ?? kind)}
    </Badge>
  );
}
