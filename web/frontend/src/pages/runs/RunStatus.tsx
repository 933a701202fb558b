import { Badge } from "@mantine/core";

import type { Status } from "./format";

const COLOURS: Record<Status, string> = {
  running: "blue",
  ending: "orange",
  done: "green",
  failed: "red",
  interrupted: "yellow",
  unknown: "gray",
};

/** How a run is doing, in a word and a colour. */
export function RunStatus({ status }: { status: Status }) {
  return (
    <Badge size="sm" variant="light" color={COLOURS[status]} style={{ flexShrink: 0, minWidth: "max-content" }}>
      {status}
    </Badge>
  );
}
