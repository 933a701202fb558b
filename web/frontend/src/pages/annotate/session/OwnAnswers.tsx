import { Badge, Button, Drawer, Group, Stack, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";

import { api, body, type Schemas } from "../../../api/client";
import { Empty, Failure, Waiting } from "../../../components/States";
import { momentInWords } from "../../../format/moment";
import { t } from "../../../i18n";
import { answerInWords, useWords } from "../words";

type OwnAnswer = Schemas["OwnAnswerReply"];

const MOST = 50;

interface OwnAnswersProps {
  queue: string;
  person: string;
  /** Votes so far: another list then. */
  seen: number;
  opened: boolean;
  onClose: () => void;
  /** Opens the answer's item again. */
  onChange: (answer: OwnAnswer) => void;
}

/** What one has answered in this queue, newest first, to be read and, while it is open, changed. */
export function OwnAnswers({ queue, person, seen, opened, onClose, onChange }: OwnAnswersProps) {
  return (
    <Drawer opened={opened} onClose={onClose} position="right" size="lg" title={t("Your answers")} transitionProps={{ duration: 0 }} closeButtonProps={{ "aria-label": t("Close") }}>
      {opened && <Answers {...{ queue, person, seen, onChange }} />}
    </Drawer>
  );
}

function Answers({ queue, person, seen, onChange }: Omit<OwnAnswersProps, "opened" | "onClose">) {
  const words = useWords();
  const { data, error, fetchNextPage, hasNextPage, isFetchingNextPage } = useInfiniteQuery({
    queryKey: ["own answers", queue, person, seen],
    queryFn: ({ pageParam }) => body(api.GET("/api/annotate/queues/{queue}/answers", { params: { path: { queue }, query: { start: pageParam, most: MOST } } })),
    initialPageParam: 0,
    getNextPageParam: (last, pages) => (pages.length * MOST < last.total ? pages.length * MOST : null),
    gcTime: 0,
  });
  if (data === undefined) return error ? <Failure error={error} /> : <Waiting />;
  const { total, changeable } = data.pages.at(-1)!;
  if (total === 0) return <Empty title={t("No answer yet")}>{t("What you answer here is listed, and can be changed while the queue is open.")}</Empty>;
  return (
    <Stack gap="xs">
      <Text size="sm" className="dim">
        {t("{{count}} answers", { count: total })}. {changeable ? t("Each can be changed while the queue is open.") : t("The queue is closed: they stay as they are.")}
      </Text>
      <ul className="session-own">
        {data.pages
          .flatMap((page) => page.answers)
          .map((answer) => (
            <li key={answer.ticket} className="panel">
              <Group justify="space-between" wrap="nowrap" align="start" gap="xs">
                <div style={{ minWidth: 0 }}>
                  <Text size="xs" className="dim">
                    {t("Item {{number}}", { number: answer.item })}, {momentInWords(answer.at)}
                  </Text>
                  <Text size="sm" dir="auto" lineClamp={2} style={{ overflowWrap: "anywhere" }}>
                    {answer.excerpt}
                  </Text>
                  <Text size="sm" fw={600} style={{ overflowWrap: "anywhere" }}>
                    {answerInWords(words, answer)}
                  </Text>
                  {answer.said !== "skip" && answer.rationale !== "" && (
                    <Text size="sm" className="dim" dir="auto" lineClamp={3} style={{ overflowWrap: "anywhere" }}>
                      {answer.rationale}
                    </Text>
                  )}
                  <Group gap={4} mt={2}>
                    {answer.changes > 0 && (
                      <Badge size="xs" variant="light" color="gray" tt="none">
                        {t("changed {{count}} times", { count: answer.changes })}
                      </Badge>
                    )}
                    {answer.notes > 0 && (
                      <Badge size="xs" variant="light" color="yellow" tt="none">
                        {t("{{count}} notes", { count: answer.notes })}
                      </Badge>
                    )}
                  </Group>
                </div>
                {changeable && (
                  <Button variant="light" style={{ flexShrink: 0 }} aria-label={t("Change the answer to item {{number}}", { number: answer.item })} onClick={() => onChange(answer)}>
                    {t("Change it")}
                  </Button>
                )}
              </Group>
            </li>
          ))}
      </ul>
      {hasNextPage && (
        <Button variant="light" color="gray" loading={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          {t("Show older ones")}
        </Button>
      )}
    </Stack>
  );
}
