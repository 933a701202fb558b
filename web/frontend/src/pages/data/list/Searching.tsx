import { Button, Group, Progress, Text } from "@mantine/core";

import { fixed } from "../../../format/figure";
import { t } from "../../../i18n";

interface Props {
  examined: number;
  total: number;
  found: number;
  stopped: boolean;
  stop: () => void;
  goOn: () => void;
}

/** How far a search has come in which matches are rare. It can be stopped, and goes on where it was. */
export function Searching({ examined, total, found: matches, stopped, stop, goOn }: Props) {
  const share = (100 * examined) / Math.max(total, 1);
  return (
    <Group gap="xs" wrap="nowrap">
      <Progress value={share} w={{ base: 64, sm: 160 }} flex="none" size="sm" aria-label={t("Searched")} />
      <Text size="sm" className="dim" role="status">
        {t("{{matches}} found in {{share}} % of {{total}}", { matches, share: share < 1 ? fixed(share, 1) : Math.floor(share), total })}
        {stopped ? t(", stopped") : t(", searching on")}
      </Text>
      <Button variant="subtle" size="compact-xs" flex="none" onClick={stopped ? goOn : stop}>
        {stopped ? t("Search on") : t("Stop")}
      </Button>
    </Group>
  );
}
