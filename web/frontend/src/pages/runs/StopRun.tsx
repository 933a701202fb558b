import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconPlayerStop } from "@tabler/icons-react";
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../api/client";
import { useAllows } from "../../api/session";
import { Failure } from "../../components/States";
import { t } from "../../i18n";
import { goesOn } from "./format";

type Detail = Schemas["RunDetail"];

/** Ends a run as Ctrl-C does where it runs, after a question. Pressed once more, it does not wait for the step. */
export function StopRun({ detail }: { detail: Detail }) {
  const allowed = useAllows("curate");
  const [opened, { open, close }] = useDisclosure();
  const queries = useQueryClient();
  const { run } = detail;
  const again = run.status === "ending";
  const stop = useMutation({
    mutationFn: () => body(api.POST("/api/runs/{run_id}/stop", { params: { path: { run_id: run.id } }, body: { again } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["run", run.id], exact: true }),
    onSuccess: close,
  });
  if (!allowed || !goesOn(run.status)) return null;
  if (!detail.can_stop)
    return (
      <Text size="xs" className="dim" maw={280}>
        {t("It runs on {{host}}, where only Ctrl-C can end it.", { host: detail.host })}
      </Text>
    );
  const action = again ? t("End at once") : t("Stop the run");
  return (
    <>
      <Button color="red" variant={again ? "outline" : "light"} leftSection={<IconPlayerStop size={14} />} onClick={open}>
        {action}
      </Button>
      <Modal opened={opened} onClose={close} title={`${action}?`} centered closeButtonProps={{ "aria-label": t("Close") }}>
        <Stack gap="sm">
          <Text size="sm">
            {again
              ? t("It was asked to end and is still at its step. Ended at once, it loses what it did since its last checkpoint.")
              : t("A training finishes its step, saves a checkpoint and ends as interrupted; a command goes on with it later. Other runs end where they are.")}
          </Text>
          {stop.error !== null && <Failure error={stop.error} />}
          <Group justify="end" gap="xs">
            <Button variant="default" onClick={close} data-autofocus>{t("Let it run")}</Button>
            <Button color="red.9" c="white" loading={stop.isPending} onClick={() => stop.mutate()}>
              {action}
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
