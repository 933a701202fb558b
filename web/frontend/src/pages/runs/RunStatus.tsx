import { Badge } from "@mantine/core";

import { counted } from "../../format/count";
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
export function RunStatus({ status, warnings = [] }: { status: Status; warnings?: string[] }) {
  const warned = status === "done" && warnings.length > 0;
  return (
    <Badge size="sm" variant="light" color={warned ? "orange" : COLOURS[status]} title={warned ? warnings.join("; ") : undefined} style={{ flexShrink: 0, minWidth: "max-content" }}>
      {warned ? `${status}, ${counted(warnings.length, "warning")}` : status}
    </Badge>
  );
}
