import { Button, Group } from "@mantine/core";
import { IconPlayerPlay, IconPlayerStop, IconRepeat } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "react-router";

import { api, body } from "../../api/client";
import { useAllows } from "../../api/session";
import { Failure } from "../../components/States";
import { t } from "../../i18n";
import { formPath, goesOn, type Job } from "./useJobs";

/** Stopping a job, going on with it, or its form once more. */
export function JobActions({ job }: { job: Job }) {
  const allowed = useAllows("curate");
  const queries = useQueryClient();
  const navigate = useNavigate();
  const settled = () => queries.invalidateQueries({ queryKey: ["jobs"] });
  const params = { params: { path: { job_id: job.id } } };
  const stop = useMutation({ mutationFn: () => body(api.POST("/api/jobs/{job_id}/stop", params)), onSettled: settled });
  const resume = useMutation({
    mutationFn: () => body(api.POST("/api/jobs/{job_id}/resume", params)),
    onSettled: settled,
    onSuccess: ({ id }) => navigate(`/jobs/${id}`),
  });
  const failed = stop.error ?? resume.error;
  if (!allowed) return null;
  return (
    <>
      <Group gap="xs">
        {goesOn(job) && (
          <Button
            variant="light"
            color="orange"
            leftSection={<IconPlayerStop size={14} />}
            loading={stop.isPending}
            disabled={job.status === "stopping"}
            onClick={() => stop.mutate()}
          >
            {job.status === "waiting" ? t("Take back") : t("Stop")}
          </Button>
        )}
        {job.can_resume && (
          <Button
            variant="light"
            leftSection={<IconPlayerPlay size={14} />}
            title={t("From its last saved state; what was done is left out")}
            loading={resume.isPending}
            onClick={() => resume.mutate()}
          >
            {t("Resume")}
          </Button>
        )}
        {!goesOn(job) && job.area !== "other" && (
          <Button variant="subtle" leftSection={<IconRepeat size={14} />} component={Link} to={formPath(job.kind, job.settings)}>
            {t("Run again")}
          </Button>
        )}
      </Group>
      {failed !== null && <Failure error={failed} />}
    </>
  );
}
