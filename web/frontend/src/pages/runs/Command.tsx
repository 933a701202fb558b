import { ActionIcon, Code, CopyButton, Group, Tooltip } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";

/** A command to be copied. */
export function Command({ line }: { line: string }) {
  return (
    <Group gap={4} wrap="nowrap" align="start">
      <Code style={{ overflowWrap: "anywhere" }}>{line}</Code>
      <CopyButton value={line}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? "Copied" : "Copy"}>
            <ActionIcon size="sm" variant="subtle" color="gray" aria-label={`Copy ${line}`} onClick={copy}>
              {copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
    </Group>
  );
}
