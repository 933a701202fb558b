import { Alert, Button, Group, Modal, SimpleGrid, Stack, Text, Textarea, Title } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, body, type Schemas } from "../../../../api/client";
import { Problem } from "../../../../api/problems";
import { Failure, Waiting } from "../../../../components/States";
import { momentInWords } from "../../../../format/moment";
import { t } from "../../../../i18n";
import { Guideline } from "../../Guideline";
import { useEdit } from "./useSettings";

type Version = Schemas["GuidelineVersion"];

/** Somebody's text that is not stored yet, and the version it was made from. */
interface Draft {
  text: string;
  version: number;
}

/** The guideline, edited as a whole. Of two who edit it at once the second sees the other's text and chooses. */
export function GuidelineEditor({ queue, current }: { queue: string; current: Version }) {
  const queries = useQueryClient();
  const [draft, setDraft, dropDraft] = useLocalStorage<Draft | null>({ key: `assay-guideline-${queue}`, defaultValue: null, sync: false });
  const [theirs, setTheirs] = useState<Version | null>(null);
  const [history, setHistory] = useState(false);
  const path = { params: { path: { queue } } };
  const text = draft?.text ?? current.text;
  const changed = draft !== null && draft.text !== current.text;
  const store = useEdit<Draft>(queue, async (edited) => {
    try {
      await body(api.PUT("/api/queues/{queue}/guideline", { ...path, body: edited }));
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 409) throw error;
      const [newest] = await body(api.GET("/api/queues/{queue}/guideline", path));
      setTheirs(newest ?? null);
      return;
    }
    setTheirs(null);
    dropDraft();
    await queries.invalidateQueries({ queryKey: ["guideline", queue] });
  });
  return (
    <section className="panel" aria-label={t("Guideline")}>
      <Group justify="space-between" mb={4}>
        <Title order={2}>{t("Guideline")}</Title>
        <Button variant="subtle" size="compact-sm" onClick={() => setHistory(true)}>
          {t("Version {{version}}, history", { version: current.version })}
        </Button>
      </Group>
      {draft !== null && draft.version < current.version && theirs === null && (
        <Alert color="yellow" mb="xs">
          {t("This draft of yours was made from version {{version}}; there is a newer one. Storing it asks first.", { version: draft.version })}
        </Alert>
      )}
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="sm">
        <Textarea
          aria-label={t("Text of the guideline, Markdown")}
          description={t("Markdown. Annotators see it with their next item; each vote knows the version that was shown.")}
          autosize
          minRows={6}
          maxRows={30}
          maxLength={20_000}
          value={text}
          onChange={(event) => setDraft({ text: event.currentTarget.value, version: draft?.version ?? current.version })}
        />
        <div aria-label={t("As it is drawn")} role="region">
          {text.trim() === "" ? <Text size="sm" className="dim">{t("No guideline")}</Text> : <Guideline text={text} />}
        </div>
      </SimpleGrid>
      <Group gap="xs" mt="xs">
        <Button
          onClick={() => draft !== null && store.mutate(draft)}
          loading={store.isPending}
          disabled={!changed}
        >
          {t("Store the guideline")}
        </Button>
        {draft !== null && (
          <Button variant="subtle" color="gray" onClick={dropDraft}>
            {t("Drop the draft")}
          </Button>
        )}
      </Group>
      {theirs !== null && draft !== null && (
        <Conflict
          mine={draft}
          theirs={theirs}
          close={() => setTheirs(null)}
          takeTheirs={() => {
            setTheirs(null);
            dropDraft();
          }}
          keepMine={() => store.mutate({ text: draft.text, version: theirs.version })}
          edit={(edited) => {
            setTheirs(null);
            setDraft({ text: edited, version: theirs.version });
          }}
        />
      )}
      {history && <History queue={queue} close={() => setHistory(false)} restore={(old) => {
        setHistory(false);
        setDraft({ text: old, version: current.version });
      }} />}
    </section>
  );
}

interface ConflictProps {
  mine: Draft;
  theirs: Version;
  close: () => void;
  takeTheirs: () => void;
  keepMine: () => void;
  edit: (text: string) => void;
}

/** Two edited at once: both texts, and what to do. Nothing is stored until one is chosen. */
function Conflict({ mine, theirs, close, takeTheirs, keepMine, edit }: ConflictProps) {
  const who = theirs.person ?? t("somebody");
  return (
    <Modal opened onClose={close} size="xl" title={t("{{who}} has changed the guideline meanwhile", { who })}>
      <Stack gap="sm">
        <Text size="sm">{t("Nothing of yours is stored yet, and nothing is lost: all versions stay in the history.")}</Text>
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
          <Textarea label={t("Of {{who}}, stored {{when}}", { who, when: momentInWords(theirs.at) })} readOnly autosize minRows={6} maxRows={16} value={theirs.text} />
          <Textarea label={t("Yours, not stored")} readOnly autosize minRows={6} maxRows={16} value={mine.text} />
        </SimpleGrid>
        <Group gap="xs" justify="flex-end">
          <Button variant="default" onClick={takeTheirs}>
            {t("Take theirs, drop mine")}
          </Button>
          <Button variant="default" onClick={() => edit(`${theirs.text}\n\n${mine.text}`)}>
            {t("Edit both together")}
          </Button>
          <Button onClick={keepMine}>{t("Store mine as the next version")}</Button>
        </Group>
      </Stack>
    </Modal>
  );
}

function History({ queue, close, restore }: { queue: string; close: () => void; restore: (text: string) => void }) {
  const { data, failureReason: error } = useQuery({
    queryKey: ["guideline", queue],
    queryFn: () => body(api.GET("/api/queues/{queue}/guideline", { params: { path: { queue } } })),
    staleTime: 0,
  });
  return (
    <Modal opened onClose={close} size="lg" title={t("Versions of the guideline")}>
      {data === undefined ? (
        error ? <Failure error={error} /> : <Waiting />
      ) : (
        <Stack gap="md">
          {data.map((version) => (
            <section key={version.version} aria-label={t("Version {{version}}", { version: version.version })}>
              <Group justify="space-between">
                <Text fw={600} size="sm">
                  {t("Version {{version}}", { version: version.version })}
                  <Text span size="sm" className="dim">
                    {" "}
                    {version.person ?? t("as it was made")}, {momentInWords(version.at)}
                  </Text>
                </Text>
                <Button variant="subtle" size="compact-xs" onClick={() => restore(version.text)}>
                  {t("Edit from here")}
                </Button>
              </Group>
              {version.text === "" ? <Text size="sm" className="dim">{t("No guideline")}</Text> : <Guideline text={version.text} />}
            </section>
          ))}
        </Stack>
      )}
    </Modal>
  );
}
