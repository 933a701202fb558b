import { Badge } from "@mantine/core";

import { t } from "../../i18n";
import type { Job } from "./useJobs";
import { statusWord } from "./words";

const COLOURS: Record<Job["status"], string> = {
  waiting: "gray",
  running: "blue",
  stopping: "orange",
  stopped: "gray",
  interrupted: "yellow",
  failed: "red",
  incomplete: "yellow",
  done: "teal",
};

/** How a job stands, in a word and a colour; one that ended with warnings does not look like one that ended well. */
export function JobBadge({ job }: { job: Pick<Job, "status" | "warnings"> }) {
  const warned = job.status === "done" && job.warnings.length > 0;
  return (
    <Badge size="sm" variant="light" radius="sm" color={warned ? "orange" : COLOURS[job.status]} style={{ flexShrink: 0 }}>
      {warned ? t("done, {{count}} warnings", { count: job.warnings.length }) : statusWord(job.status)}
    </Badge>
  );
}
