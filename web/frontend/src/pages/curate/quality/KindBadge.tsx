import { Badge } from "@mantine/core";

const NAMES: Record<string, string> = { human: "person", llm: "language model", reward_model: "reward model" };

/** What sort of annotator it is. */
export function KindBadge({ kind }: { kind: string }) {
  return (
    <Badge size="xs" radius="sm" variant="light" color={kind === "human" ? "teal" : kind === "source" ? "gray" : "indigo"}>
      {NAMES[kind] ?? kind}
    </Badge>
  );
}
