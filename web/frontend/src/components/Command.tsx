import { ActionIcon, Code, CopyButton, Group, Tooltip } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";

import { t } from "../i18n";

/** A command to be copied. */
export function Command({ line }: { line: string }) {
  return (
    <Group gap={4} wrap="nowrap" align="start">
      <Code style={{ overflowWrap: "anywhere" }}>{line}</Code>
      <CopyButton value={line}>
        {({ copied, copy }) => (
          <Tooltip label={copied ? t("Copied") : t("Copy")}>
            <ActionIcon size="sm" variant="subtle" color="gray" aria-label={t("Copy {{line}}", { line })} onClick={copy}>
              {copied ? <IconCheck size={14} /> : <IconCopy size={14} />}
            </ActionIcon>
          </Tooltip>
        )}
      </CopyButton>
    </Group>
  );
}
