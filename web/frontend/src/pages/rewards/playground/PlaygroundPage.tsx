import { Alert, Button, Code, Group, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { api, body } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { AGAIN } from "../again";
import { ANSWER, questionOf, useDraft, useKept, type Answer, type Question } from "./draft";
import { ModelPicker, sameModel } from "./ModelPicker";
import { PrinciplePicker } from "./PrinciplePicker";
import { PromptEditor } from "./PromptEditor";
import { ResponsesEditor } from "./ResponsesEditor";
import { ScoreTable } from "./ScoreTable";

/** A prompt, responses, models side by side. What stands here, and the last answer, outlive a reload. */
export function PlaygroundPage() {
  const served = useQuery({ queryKey: ["rewards", "served"], queryFn: () => body(api.GET("/api/rewards/served")), staleTime: 15_000 });
  const [stored, change] = useDraft();
  const [answer, setAnswer] = useKept<Answer | null>(ANSWER, null);
  const ask = useMutation({
    ...AGAIN,
    mutationFn: async (question: Question) => ({
      question,
      reply: await body(api.POST("/api/rewards/playground", { body: question })),
      at: new Date().toISOString(),
    }),
    onSuccess: setAnswer,
  });
  if (served.data === undefined) return served.failureReason === null ? <Waiting what={t("Asking the reward servers")} /> : <Failure error={served.failureReason} />;
  const { servers } = served.data;
  if (servers.length === 0) return <NoServer />;
  const all = servers.flatMap((server) => server.models.map((model) => ({ address: server.address, model: model.name })));
  const nothingToChoose = all.length === 1 && servers.every((server) => server.error === null);
  const draft = nothingToChoose ? { ...stored, models: all } : stored;
  const chosen = servers.flatMap((server) =>
    server.models.filter((model) => draft.models.some((choice) => sameModel(choice, { address: server.address, model: model.name }))),
  );
  const question = questionOf(draft);
  const changed = answer !== null && JSON.stringify(question) !== JSON.stringify(answer.question);
  const send = () => question !== null && !ask.isPending && ask.mutate(question);
  return (
    <Stack
      gap="sm"
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
      }}
    >
      <SimpleGrid cols={{ base: 1, md: 3 }} spacing="sm">
        <div className="panel">
          <PromptEditor turns={draft.prompt} onChange={(prompt) => change({ prompt })} />
        </div>
        <div className="panel">
          <ResponsesEditor responses={draft.responses} onChange={(responses) => change({ responses })} />
        </div>
        <Stack className="panel" gap="sm">
          <ModelPicker
            servers={servers}
            chosen={draft.models}
            onChange={(models) => change({ models })}
          />
          <PrinciplePicker models={chosen} own={draft.own} on={draft.principles} onChange={change} />
          {chosen.some((model) => model.kind === "composed") && (
            <TextInput
              label={t("Label")}
              description={t("What verifiers check against; models ignore it.")}
              value={draft.label}
              onChange={(event) => change({ label: event.currentTarget.value })}
            />
          )}
          <Group justify="space-between">
            <Button onClick={send} disabled={question === null} loading={ask.isPending}>{t("Score")}</Button>
            <Text size="xs" className="dim">
              {question === null ? missing(draft.models.length) : t("Ctrl + Enter")}
            </Text>
          </Group>
          <Button variant="subtle" size="compact-xs" onClick={() => void served.refetch()} loading={served.isFetching}>
            {t("Ask the servers again what they serve")}
          </Button>
        </Stack>
      </SimpleGrid>
      {ask.failureReason !== null && <Failure error={ask.failureReason} />}
      {answer !== null && (
        <Stack gap={6}>
          <Text size="xs" className="dim">
            {t("Scored {{at}}. P is the calibrated probability of beating a typical response (assay calibrate fits one); rewards of two models are not on one scale. An ensemble gives uncertainty (assay ensemble, assay train probe --members): ± is the deviation of its members.", { at: momentInWords(answer.at) })}
          </Text>
          {changed && (
            <Alert color="gray" p={6}>
              {t("The question has changed since: these are the scores of what was asked before.")}
            </Alert>
          )}
          <ScoreTable answer={answer} />
        </Stack>
      )}
    </Stack>
  );
}

function missing(models: number): string {
  return models === 0 ? t("choose a model") : t("needs a prompt and a response");
}

function NoServer() {
  return (
    <Empty title={t("No reward server to ask")}>
      <Button component={Link} to="/rewards/served" variant="light" my="xs">
        {t("Serve a model")}
      </Button>
      <br />
      {t("Or name one that runs elsewhere when starting this page's server:")}
      <br />
      <Code>assay web --rewards http://127.0.0.1:8000</Code>
    </Empty>
  );
}
