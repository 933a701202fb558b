import { Alert, Button, Group, Modal, Stack, Text } from "@mantine/core";
import { IconPlayerPlay } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api, body } from "../../api/client";
import { Failure, Waiting } from "../../components/States";
import { t } from "../../i18n";
import { Command } from "../../components/Command";
import { Estimate } from "./Estimate";
import { Plan } from "./Plan";
import type { Job, Settings } from "./useJobs";
import { titleOf } from "./words";

const TRAININGS = new Set(["train", "policy"]); // what `assay plan` knows

/** What the job would take, and only then the button that begins it. */
export function StartDialog({
  kind,
  title,
  settings,
  onClose,
  onStarted,
}: {
  kind: string;
  title: string;
  settings: Settings;
  onClose: () => void;
  onStarted: (job: Job) => void;
}) {
  const queries = useQueryClient();
  const estimate = useQuery({
    queryKey: ["jobs", "estimate", kind, settings],
    queryFn: () => body(api.POST("/api/jobs/estimate", { body: { kind, settings } })),
    gcTime: 0,
    staleTime: Infinity,
  });
  const start = useMutation({
    mutationFn: (token: string) => body(api.POST("/api/jobs", { body: { kind, settings, token } })),
    onSuccess: async (job) => {
      await queries.invalidateQueries({ queryKey: ["jobs", "list"] });
      onClose();
      onStarted(job);
    },
    // What it would take may have changed since: the new figures are shown beside what was said.
    onError: () => estimate.refetch(),
  });
  const problem = estimate.failureReason ?? estimate.error;
  return (
    <Modal opened onClose={onClose} title={titleOf(kind, title)} size="lg" closeButtonProps={{ "aria-label": t("Close") }}>
      <Stack gap="sm">
        {problem != null && <Failure error={problem} />}
        {estimate.data === undefined && problem == null && (
          <>
            <Waiting what={t("Working out the estimate")} />
            <Text size="sm" className="dim" ta="center">
              {t("Working out what it would take. With many comparisons this takes some seconds.")}
            </Text>
          </>
        )}
        {estimate.data !== undefined && (
          <>
            <Estimate estimate={estimate.data} />
            {TRAININGS.has(kind) && <Plan kind={kind} settings={settings} steps={estimate.data.steps} />}
            <div>
              <Text size="xs" className="dim">
                {t("It runs this in the workspace's folder, in a process of its own that goes on without this server:")}
              </Text>
              <Command line={estimate.data.command} />
            </div>
          </>
        )}
        {start.error !== null && (
          <Alert color="red" role="alert">
            {start.error.message}
          </Alert>
        )}
        <Group justify="end" gap="xs">
          <Button variant="default" onClick={onClose}>
            {t("Not now")}
          </Button>
          <Button
            leftSection={<IconPlayerPlay size={14} />}
            disabled={estimate.data === undefined || estimate.isFetching}
            loading={start.isPending}
            onClick={() => estimate.data !== undefined && start.mutate(estimate.data.token)}
          >
            {t("Start")}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
