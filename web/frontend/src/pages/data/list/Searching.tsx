import { Button, Group, Progress, Text } from "@mantine/core";

import { count } from "../../../format/count";

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
      <Progress value={share} w={{ base: 64, sm: 160 }} flex="none" size="sm" aria-label="Searched" />
      <Text size="sm" className="dim" role="status">
        {count(matches)} found in {share < 1 ? share.toFixed(1) : Math.floor(share)} % of {count(total)}
        {stopped ? ", stopped" : ", searching on"}
      </Text>
      <Button variant="subtle" size="compact-xs" flex="none" onClick={stopped ? goOn : stop}>
        {stopped ? "Search on" : "Stop"}
      </Button>
    </Group>
  );
}
