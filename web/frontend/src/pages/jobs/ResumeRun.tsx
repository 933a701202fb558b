import { Button } from "@mantine/core";
import { IconPlayerPlay } from "@tabler/icons-react";
import { Link } from "react-router";

import { useAllows } from "../../api/session";
import { t } from "../../i18n";
import { formPath } from "./useJobs";

/** The form that goes on with a run as a job. `line`: the command that does; nothing for one that is no job. */
export function ResumeRun({ line }: { line: string }) {
  const allowed = useAllows("curate");
  const [, command, ...rest] = line.split(" ");
  const run = rest.at(-1);
  if (!allowed || run === undefined || (command !== "rl" && command !== "train")) return null;
  const to = command === "rl" ? formPath("policy", { resume: run }) : formPath("train", { method: rest[0] ?? null, resume: run });
  return (
    <Button component={Link} to={to} size="compact-sm" variant="light" leftSection={<IconPlayerPlay size={14} />}>
      {t("Resume here")}
    </Button>
  );
}
