import { Alert, Button, Group, Stack } from "@mantine/core";
import { useDisclosure, useLocalStorage } from "@mantine/hooks";
import { useEffect, useRef, useState, type ComponentType } from "react";
import { Link, useNavigate } from "react-router";

import { ImagesFrom } from "../../../components/Messages";
import { Empty, Failure, Waiting } from "../../../components/States";
import { PrincipleVotes } from "../principles/PrincipleVotes";
import { RankingTask } from "../tasks/RankingTask";
import { RatingTask } from "../tasks/RatingTask";
import { SpanTask } from "../tasks/SpanTask";
import { StepTask } from "../tasks/StepTask";
import type { TaskProps } from "../tasks/task";
import { DecisionBar } from "./DecisionBar";
import { draftName } from "../drafts";
import { KeyHelp } from "./KeyHelp";
import { LiveFigures } from "./LiveFigures";
import { Refused, Unsent } from "./Notices";
import { OwnFigures } from "./OwnFigures";
import { PromptPanel } from "./PromptPanel";
import { Opinions, Receipt } from "./Receipt";
import { ResponsePair, type Look } from "./ResponsePair";
import { About, Section, SideColumn } from "./SideColumn";
import { SessionHeader } from "./SessionHeader";
import { SkipDialog } from "./SkipDialog";
import { useDraft } from "./useDraft";
import { useKeys } from "../useKeys";
import { useLease } from "./useLease";
import { useAnnotationSession, type LastVote, type Reply } from "./useAnnotationSession";
import { useQuestionTypes, type QuestionTypes } from "../questionTypes";
import { useWords, type Choice, type SkipReason } from "../words";

interface SessionProps {
  queue: string;
  person: string;
  adjudicating: boolean;
}

/** One comparison after the other, decided by single keys; an adjudicator's where the votes have no majority. */
export function AnnotationSession(props: SessionProps) {
  const types = useQuestionTypes();
  if (types.data === undefined) return types.failureReason ? <Failure error={types.failureReason} /> : <Waiting />;
  return <Session {...props} types={types.data} />;
}

/** The page's components of question types, by name: those that decide a pair, those of other items, which they show
 * themselves, and those asked beside them. */
const DECISIONS: Record<string, typeof DecisionBar> = { PairPreference: DecisionBar };
const TASKS: Record<string, ComponentType<TaskProps>> = {
  ResponseRating: RatingTask,
  StepLabels: StepTask,
  SpanMarking: SpanTask,
  ResponseRanking: RankingTask,
};
const ADDITIONS: Record<string, typeof PrincipleVotes> = { PrincipleFulfilment: PrincipleVotes };

function Session({ queue, person, adjudicating, types }: SessionProps & { types: QuestionTypes }) {
  const words = useWords();
  const session = useAnnotationSession(queue, person, adjudicating);
  const { reply, sending, last } = session;
  // After a vote whose item has something to show, that item stays until its person goes on.
  const [receiptOf, setShown] = useState<LastVote | null>(null);
  const [look, setLook] = useState<Look>("rendered");
  const [writing, setWriting] = useState<string | null>(null); // the ticket whose rationale is open
  const [keys, setKeys] = useLocalStorage({ key: "assay.single-keys", defaultValue: true });
  const [pause, setPause] = useLocalStorage({ key: "assay.pause-at-opinions", defaultValue: true });
  const [help, helpIs] = useDisclosure();
  const [skipping, skippingIs] = useDisclosure();
  const box = useRef<HTMLTextAreaElement>(null);
  const before = useRef<HTMLDivElement>(null);
  const next = useRef<HTMLButtonElement>(null);
  const navigate = useNavigate();
  const item = receiptOf?.item ?? reply?.item ?? undefined;
  const { draft, change, drop, seconds } = useDraft(
    item === undefined ? undefined : draftName(person, queue, item),
  );
  const lost = useLease(queue, receiptOf === null ? item?.ticket : undefined, reply?.lease_seconds ?? 1800);

  const Task = item === undefined ? undefined : TASKS[item.component];
  const decide = async (decision: { choice?: Choice; skip?: SkipReason; answer?: Record<string, unknown> }) => {
    if (item === undefined || receiptOf !== null || sending) return;
    skippingIs.close();
    const done = await session.decide(item, { ...decision, ...draft, seconds: Math.round(seconds() * 10) / 10 });
    drop();
    const { opinions, votes } = done?.receipt ?? { opinions: [], votes: [] };
    if (done !== null && (votes.length > 0 || (pause && opinions.length > 0))) setShown(done);
    else window.scrollTo(0, 0);
  };

  useEffect(() => {
    // The button that was pressed is gone: who has no single keys goes on from where it was.
    if (document.activeElement === document.body) (receiptOf === null ? before : next).current?.focus({ preventScroll: true });
  }, [receiptOf]);

  const goOn = () => {
    setShown(null);
    window.scrollTo(0, 0);
  };

  const press = (key: string): boolean => {
    const choice = Task !== undefined ? undefined : words.choices.find((option) => option.key === key)?.name as Choice | undefined;
    if (receiptOf !== null && (key === "Enter" || key === " ")) goOn();
    else if (key === "?") helpIs.open();
    else if (key === "d" && Task === undefined) setLook(look === "diff" ? "rendered" : "diff");
    else if (key === "m") setLook(look === "plain" ? "rendered" : "plain");
    else if (key === "q") void session.release().finally(() => navigate("/annotate"));
    else if (key === "u") {
      setShown(null);
      void session.undo();
    } else if (item === undefined || receiptOf !== null || sending) return false;
    else if (choice !== undefined) void decide({ choice });
    else if (key === words.skip.key) skippingIs.open();
    else if (key === "r") {
      setWriting(item.ticket);
      setTimeout(() => box.current?.focus());
    } else if (key === "v" && adjudicating) void session.reveal();
    else if (Task === undefined && /^[0-3]$/.test(key)) change({ strength: draft.strength === Number(key) ? null : Number(key) });
    else return false;
    return true;
  };
  useKeys(keys && !help && !skipping, press);

  const Decision = item === undefined ? undefined : DECISIONS[item.component];
  const Addition = ADDITIONS[types.principles?.component ?? ""];
  if (reply === undefined && session.trouble === null) return session.error ? <Failure error={session.error} /> : <Waiting />;
  return (
    <>
      <SessionHeader
        queue={queue}
        person={person}
        progress={reply?.progress}
        seconds={seconds}
        look={look}
        canUndo={reply?.progress.last != null}
        press={press}
      />
      <div className="session" ref={before} tabIndex={-1} role="group" aria-label="Item">
        <Stack gap="xs">
          {session.trouble !== null && <Unsent trouble={session.trouble} forgetful={session.forgetful} />}
          {session.notice !== null && (
            <Alert color="yellow" role="alert" p="xs">
              {session.notice}
            </Alert>
          )}
          {lost && (
            <Alert color="yellow" role="alert" p="xs" title="The time for this item ran out, and somebody else has it">
              <Button variant="light" color="yellow" onClick={session.refetch}>
                Next item
              </Button>
            </Alert>
          )}
          {session.refused.map((vote) => (
            <Refused key={`${vote.queue} ${vote.body.ticket}`} vote={vote} onDismiss={() => session.dismiss(vote)} />
          ))}
          {item !== undefined && (
            <ImagesFrom value={(hash) => `/api/annotate/queues/${encodeURIComponent(queue)}/items/${item.ticket}/media/${hash}`}>
              <PromptPanel key={item.ticket} item={item} plain={look !== "rendered"} />
              {Task === undefined ? (
                <ResponsePair item={item} look={look} />
              ) : (
                <Task
                  key={`task ${item.ticket}`}
                  item={item}
                  draft={draft}
                  change={change}
                  onAnswer={(answer) => void decide({ answer })}
                  press={press}
                  disabled={sending || session.trouble !== null || receiptOf !== null}
                  keys={keys && !help && !skipping}
                  plain={look !== "rendered"}
                  writing={writing === item.ticket}
                  box={box}
                />
              )}
              {receiptOf !== null ? (
                <Group className="panel session-bar" justify="space-between" wrap="nowrap">
                  <Receipt last={receiptOf} />
                  <Button ref={next} onClick={goOn} style={{ flexShrink: 0 }} rightSection={<kbd aria-hidden>Enter</kbd>}>
                    Next
                  </Button>
                </Group>
              ) : Task !== undefined ? null : Decision === undefined ? (
                <Failure error={new Error(`This page cannot ask questions of type ${item.question}`)} />
              ) : (
                <Decision
                  draft={draft}
                  change={change}
                  press={press}
                  disabled={session.trouble !== null}
                  writing={writing === item.ticket}
                  box={box}
                />
              )}
            </ImagesFrom>
          )}
          {item === undefined && reply !== undefined && <NothingLeft reply={reply} adjudicating={adjudicating} onUndo={() => press("u")} />}
        </Stack>
        <SideColumn
          others={
            adjudicating &&
            receiptOf === null &&
            item !== undefined && (
              <Section title="Others' votes">
                {session.revealed !== null ? (
                  <Opinions title="" opinions={session.revealed} />
                ) : (
                  <Button variant="light" color="violet" onClick={() => press("v")} rightSection={<kbd aria-hidden>v</kbd>}>
                    Show before deciding
                  </Button>
                )}
              </Section>
            )
          }
          principles={
            item !== undefined &&
            receiptOf === null &&
            item.principles.length > 0 &&
            Addition !== undefined && (
              <Addition
                key={item.ticket}
                item={item}
                principles={draft.principles}
                onChange={(principles) => change({ principles })}
                disabled={sending}
                keys={keys && !help && !skipping}
              />
            )
          }
        >
          {item !== undefined && <About item={item} guideline={reply?.guideline ?? ""} />}
          {last !== null && receiptOf === null && (
            <Section title="Last vote">
              <Receipt last={last} />
            </Section>
          )}
          <Section title="Queue">
            <LiveFigures queue={queue} pairs={Task === undefined} />
          </Section>
          {!adjudicating && (
            <Section title="You">
              <OwnFigures queue={queue} person={person} seen={reply === undefined ? 0 : reply.progress.mine + reply.progress.passed} />
            </Section>
          )}
        </SideColumn>
      </div>
      <KeyHelp opened={help} onClose={helpIs.close} keys={keys} onKeys={setKeys} pause={pause} onPause={setPause} />
      <SkipDialog opened={skipping} onClose={skippingIs.close} onSkip={(skip) => void decide({ skip })} />
    </>
  );
}

const WHY = {
  closed: ["This queue is closed", "Nobody gets items of it any more. What was voted stays."],
  waiting: ["Others have the rest before them", "An item that somebody passes on comes here by itself."],
  done: ["Nothing is left for you here", "You have seen everything that this queue asks of you."],
} as const;

function NothingLeft({ reply, adjudicating, onUndo }: { reply: Reply; adjudicating: boolean; onUndo: () => void }) {
  const [title, text] = adjudicating
    ? ["No conflict is left for you", "Every item has a majority, is decided, is one that you voted on, or is before somebody else who adjudicates."]
    : WHY[reply.empty ?? "done"];
  return (
    <div className="panel">
      <Empty title={title}>
        {text}
        <Group justify="center" gap="xs" mt="sm">
          {reply.progress.last !== null && (
            <Button variant="light" color="gray" onClick={onUndo}>
              Undo the last vote
            </Button>
          )}
          <Button component={Link} to="/annotate" variant="light">
            All queues
          </Button>
        </Group>
      </Empty>
    </div>
  );
}
