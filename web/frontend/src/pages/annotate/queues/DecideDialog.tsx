import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { MakeTrainingSet } from "../../data/sets/MakeTrainingSet";
import { nameFor } from "../../data/sets/sets";

type Report = Schemas["ResolutionReport"];

/** What a queue's votes come to, and writing it: pairs that people decided become gold. */
export function DecideDialog({ queue, title, close }: { queue: string; title: string; close: () => void }) {
  const queries = useQueryClient();
  const path = { queue };
  const preview = useQuery({
    queryKey: ["queues", queue, "resolution"],
    queryFn: () => body(api.GET("/api/queues/{queue}/resolution", { params: { path } })),
    gcTime: 0, // votes come in while this is closed
  });
  const decide = useMutation({
    mutationFn: () => body(api.POST("/api/queues/{queue}/resolution", { params: { path }, body: { least_votes: null } })),
    onSuccess: () => queries.invalidateQueries(), // labels and pools are shown in every area
  });
  const done = decide.data;
  const report = done ?? preview.data;
  return (
    <Modal opened onClose={close} size="lg" title={t("Decide by the votes of {{queue}}", { queue: title })}>
      <Stack gap="sm">
        {preview.isPending && preview.failureReason === null && <Waiting what={t("The votes are counted")} />}
        {preview.failureReason !== null && <Failure error={preview.failureReason} />}
        {report !== undefined && <Outcome report={report} />}
        {decide.error !== null && <Failure error={decide.error} />}
        {done !== undefined ? (
          <Text size="sm" role="status">
            {done.new === 0 ? t("Nothing has changed since the last time.") : t("Written: {{count}} new decisions.", { count: done.new })}
          </Text>
        ) : (
          <Text size="sm" className="dim">
            {t("A majority or an adjudicator decides. What is decided becomes gold, with who voted as its reason; what people could not decide is discarded. Votes that are taken back later take their decision back the next time.")}
          </Text>
        )}
        {done !== undefined && done.gold > 0 && (
          <>
            <Text size="sm">
              {t("Train on it: everything in the pools chosen here, of other queues too, becomes a training set.")}
            </Text>
            <MakeTrainingSet name={nameFor(queue)} pools={["gold"]} />
          </>
        )}
        <Group justify="flex-end" gap="xs">
          <Button variant="default" onClick={close}>
            {t("Close")}
          </Button>
          {done === undefined && (
            <Button onClick={() => decide.mutate()} loading={decide.isPending} disabled={preview.data === undefined}>
              {t("Decide")}
            </Button>
          )}
        </Group>
      </Stack>
    </Modal>
  );
}

function Outcome({ report }: { report: Report }) {
  const lines: [number, string][] = [
    [report.gold, report.ties > 0 ? t("gold, {{count}} of them ties", { count: report.ties }) : t("gold")],
    [report.discarded, t("discarded: people could not decide")],
    [report.conflicts, t("without a majority: adjudicate them first")],
    [report.waiting, t("wait for votes")],
    [report.overtaken, t("decided by something else meanwhile, which stands")],
    [report.revoked, t("undecided again: their votes were taken back")],
  ];
  return (
    <Stack gap={2}>
      {lines.map(([number, words], at) =>
        number > 0 || at === 0 ? (
          <Text size="sm" key={words}>
            <b>{number}</b> {words}
          </Text>
        ) : null,
      )}
    </Stack>
  );
}
