import { Badge } from "@mantine/core";

import { t } from "../../i18n";
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
      {warned ? t("done, {{count}} warnings", { count: warnings.length }) : statusName(status)}
    </Badge>
  );
}

export function statusName(status: Status): string {
  return { running: t("running"), ending: t("ending"), done: t("done"), failed: t("failed"), interrupted: t("interrupted"), unknown: t("unknown") }[status];
}
