import { Alert, Button, Group, Stack, Text } from "@mantine/core";
import { useDisclosure, useLocalStorage } from "@mantine/hooks";
import { Suspense, useEffect, useRef, useState, type ComponentType, type ReactNode } from "react";
import { Link, useNavigate } from "react-router";

import { ImagesFrom } from "../../../components/Messages";
import { lazyPage } from "../../../components/lazyPage";
import { Empty, Failure, Waiting } from "../../../components/States";
import { t } from "../../../i18n";
import { PrincipleVotes } from "../principles/PrincipleVotes";
import { RankingTask } from "../tasks/RankingTask";
import { RatingTask } from "../tasks/RatingTask";
import { SpanTask } from "../tasks/SpanTask";
import { StepTask } from "../tasks/StepTask";
import type { TaskProps } from "../tasks/task";
import { DecisionBar } from "./DecisionBar";
import { draftName, type Draft } from "../drafts";
import { ADJUDICATION, numberKey, optionKey, PAIR, SESSION, type Action } from "../keys/actions";
import { keyGroups } from "../keys/groups";
import { Key } from "../keys/Key";
import { useKeys, type Binding } from "../keys/useKeys";
import { LiveFigures } from "./LiveFigures";
import { copyLink } from "./copyLink";
import { Previous, Refused, Unsent } from "./Notices";
import { OwnFigures } from "./OwnFigures";
import { PinnedPrompt, PromptPanel } from "./PromptPanel";
import { Opinions, Receipt } from "./Receipt";
import { ResponsePair, type Look } from "./ResponsePair";
import { About, Section, SideColumn } from "./SideColumn";
import { SessionHeader } from "./SessionHeader";
import { SkipDialog } from "./SkipDialog";
import { useDraft } from "./useDraft";
import { useLease } from "./useLease";
import { whyNothing } from "./whyNothing";
import { useAnnotationSession, type LastVote, type Reply } from "./useAnnotationSession";
import { useQuestionTypes, type QuestionTypes } from "../questionTypes";
import { useWords, type Choice, type SkipReason } from "../words";

interface SessionProps {
  queue: string;
  person: string;
  adjudicating: boolean;
  /** The number of an item to begin with. */
  wanted?: number | null;
  /** Told when that one is no longer before the person. */
  onLeft?: () => void;
}

/** One comparison after the other, decided by single keys; an adjudicator's where the votes have no majority. */
export function AnnotationSession(props: SessionProps) {
  const types = useQuestionTypes();
  const session = useAnnotationSession(props.queue, props.person, props.adjudicating, props.wanted ?? null); // at the same time
  if (types.data === undefined) return types.failureReason ? <Failure error={types.failureReason} /> : <Waiting />;
  return <Session {...props} session={session} types={types.data} />;
}

// What no first item waits for.
const KeyHelp = lazyPage(async () => ({ default: (await import("../keys/KeyHelp")).KeyHelp }));
const NoteDialog = lazyPage(async () => ({ default: (await import("./NoteDialog")).NoteDialog }));
const OwnAnswers = lazyPage(async () => ({ default: (await import("./OwnAnswers")).OwnAnswers }));

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

function Session({ queue, person, adjudicating, wanted = null, onLeft, session, types }: SessionProps & { session: ReturnType<typeof useAnnotationSession>; types: QuestionTypes }) {
  const words = useWords();
  const { reply, sending, last } = session;
  // After a vote whose item has something to show, that item stays until its person goes on.
  const [receiptOf, setShown] = useState<LastVote | null>(null);
  const [stored, setLook] = useLocalStorage<Look>({ key: "assay.look", defaultValue: "rendered", getInitialValueInEffect: false });
  const [panel, setPanel] = useLocalStorage({ key: "assay.panel", defaultValue: true, getInitialValueInEffect: false });
  const [writing, setWriting] = useState<{ ticket: string } | null>(null); // the item whose rationale is open
  const [keys, setKeys] = useLocalStorage({ key: "assay.single-keys", defaultValue: true });
  const [pause, setPause] = useLocalStorage({ key: "assay.pause-at-opinions", defaultValue: true });
  const [help, helpIs] = useDisclosure();
  const [noting, notingIs] = useDisclosure();
  const [listing, listingIs] = useDisclosure();
  const [skipping, skippingIs] = useDisclosure();
  const [away, setAway] = useState(false);
  const [prompt, setPrompt] = useState<string | null>(null); // the ticket whose prompt is open: all of it, or over the responses
  const box = useRef<HTMLTextAreaElement>(null);
  const before = useRef<HTMLDivElement>(null);
  const next = useRef<HTMLButtonElement>(null);
  const navigate = useNavigate();
  const item = receiptOf?.item ?? reply?.item ?? undefined;
  const previous = receiptOf === null ? (reply?.previous ?? null) : null;
  const { draft, change, drop, seconds } = useDraft(item === undefined ? undefined : draftName(person, queue, item), begunFrom(previous));
  const lost = useLease(queue, receiptOf === null ? item?.ticket : undefined, reply?.lease_seconds ?? 1800);

  const Task = item === undefined ? undefined : TASKS[item.component];
  const look = stored === "diff" && Task !== undefined ? "rendered" : stored;
  const open = item !== undefined && receiptOf === null && !sending;
  const decide = async (decision: { choice?: Choice; skip?: SkipReason; answer?: Record<string, unknown> }) => {
    if (!open) return;
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

  useEffect(() => {
    // Voted on or left: the address is the queue's again.
    if (wanted !== null && reply !== undefined && reply.item?.number !== wanted) onLeft?.();
  }, [wanted, reply, onLeft]);

  useEffect(() => {
    if (writing !== null) box.current?.focus();
  }, [writing]);

  const goOn = () => {
    if (receiptOf === null) return false;
    setShown(null);
    window.scrollTo(0, 0);
  };
  const undo = () => {
    setShown(null);
    void session.undo();
  };
  const leave = () => void session.release().finally(() => navigate("/annotate"));
  const turnPrompt = () => setPrompt(item === undefined || prompt === item.ticket ? null : item.ticket);

  const bindings: Binding[] = [
    [SESSION.next, goOn],
    [{ ...SESSION.next, id: "next:space", position: "Space" }, goOn],
    [SESSION.help, helpIs.open],
    [SESSION.plain, () => setLook(look === "plain" ? "rendered" : "plain")],
    [SESSION.prompt, turnPrompt],
    [SESSION.panel, () => setPanel(!panel)],
    [SESSION.leave, leave],
    [SESSION.answers, () => (adjudicating ? false : listingIs.open())],
    [SESSION.flag, () => (item === undefined ? false : notingIs.open())],
    [SESSION.link, () => (item === undefined ? false : void copyLink(queue, item.number))],
    [SESSION.undo, undo],
  ];
  if (Task === undefined) bindings.push([PAIR.diff, () => setLook(look === "diff" ? "rendered" : "diff")]);
  if (open) {
    if (Task === undefined) {
      for (const choice of words.choices) bindings.push([optionKey("choice", choice), () => void decide({ choice: choice.name as Choice })]);
      words.strengths.forEach((_, n) => bindings.push([numberKey(n), () => change({ strength: draft.strength === n ? null : n })]));
    }
    bindings.push([SESSION.skip, skippingIs.open], [SESSION.rationale, () => setWriting({ ticket: item.ticket })]);
    if (adjudicating) bindings.push([ADJUDICATION.reveal, () => void session.reveal()]);
  }
  const press = (action: Action) => void bindings.find(([{ id }]) => id === action.id)?.[1]();
  const alive = keys && !help && !skipping && !noting && !listing;
  useKeys(alive, bindings);

  const Decision = item === undefined ? undefined : DECISIONS[item.component];
  const Addition = ADDITIONS[types.principles?.component ?? ""];
  if (reply === undefined && session.trouble === null) {
    if (session.error === null) return <Waiting />;
    return (
      <Stack gap="sm" align="start">
        <Failure error={session.error} />
        {wanted !== null && <Button onClick={onLeft}>{t("Next item")}</Button>}
      </Stack>
    );
  }
  const others = adjudicating && receiptOf === null && item !== undefined && (
    <Section title={t("Others' votes")} name="others">
      {session.revealed !== null ? (
        <Opinions title="" opinions={session.revealed} />
      ) : (
        <Button variant="light" color="violet" onClick={() => press(ADJUDICATION.reveal)} rightSection={<Key of={ADJUDICATION.reveal} />}>
          {t("Show before deciding")}
        </Button>
      )}
    </Section>
  );
  const suggestions = item !== undefined && receiptOf === null && item.suggestions.length > 0 && (
    <Section title={t("Suggestions")} name="suggestions">
      <Opinions title="" opinions={item.suggestions} />
      <Text size="xs" className="dim">
        {t("This queue shows them before you answer, which the records say. The answer is yours.")}
      </Text>
    </Section>
  );
  const principles = item !== undefined && receiptOf === null && item.principles.length > 0 && Addition !== undefined && (
    <Addition key={item.ticket} item={item} principles={draft.principles} onChange={(principles) => change({ principles })} disabled={sending} keys={alive} />
  );
  return (
    <>
      <SessionHeader queue={queue} title={reply?.title ?? queue} person={person} progress={reply?.progress} seconds={seconds} look={look} canUndo={reply?.progress.last != null} panel={panel} press={press} />
      <div className="session-frame" data-away={away || undefined} ref={before} tabIndex={-1} role="group" aria-label={t("Item")}>
        <Stack gap="xs">
          {session.trouble !== null && <Unsent trouble={session.trouble} forgetful={session.forgetful} />}
          {session.notice !== null && (
            <Alert color="yellow" role="alert" p="xs">
              {session.notice}
            </Alert>
          )}
          {lost && (
            <Alert color="yellow" role="alert" p="xs" title={t("The time for this item ran out, and somebody else has it")}>
              <Button variant="light" color="yellow" onClick={session.refetch}>
                {t("Next item")}
              </Button>
            </Alert>
          )}
          {previous !== null && item !== undefined && <Previous answer={previous} onLeave={() => void session.pass()} />}
          {session.refused.map((vote) => (
            <Refused key={`${vote.queue} ${vote.body.ticket}`} vote={vote} onDismiss={() => session.dismiss(vote)} />
          ))}
        </Stack>
        <ImagesFrom value={(hash) => `/api/annotate/queues/${encodeURIComponent(queue)}/items/${item?.ticket}/media/${hash}`}>
          {item !== undefined && away && <PinnedPrompt item={item} plain={look === "plain"} opened={prompt === item.ticket} onOpen={turnPrompt} />}
          <div className="session" data-panel={panel || undefined}>
            {item !== undefined && (
              <PromptPanel key={item.ticket} item={item} plain={look === "plain"} whole={prompt === item.ticket && !away} onWhole={turnPrompt} onAway={setAway} />
            )}
            {panel ? (
              <SideColumn
                first={
                  <>
                    {others}
                    {suggestions}
                    {principles}
                    {item !== undefined && <About item={item} guideline={reply?.guideline ?? ""} />}
                  </>
                }
              >
                {last !== null && receiptOf === null && (
                  <Section title={t("Last vote")} name="last">
                    <Receipt last={last} />
                  </Section>
                )}
                <Section title={t("Queue")} name="queue">
                  <LiveFigures queue={queue} pairs={Task === undefined} />
                </Section>
                {!adjudicating && (
                  <Section title={t("You")} name="own">
                    <OwnFigures queue={queue} person={person} seen={reply === undefined ? 0 : reply.progress.mine + reply.progress.passed} />
                  </Section>
                )}
              </SideColumn>
            ) : (
              // What is part of the answer stays.
              (others || suggestions || principles) && (
                <aside className="session-side session-side-first" aria-label={t("About this item")}>
                  {others}
                  {suggestions}
                  {principles}
                </aside>
              )
            )}
            <div className="session-answers">
              {item === undefined ? null : Task === undefined ? (
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
                  keys={alive}
                  plain={look === "plain"}
                  writing={writing?.ticket === item.ticket}
                  box={box}
                />
              )}
              {item === undefined ? null : receiptOf !== null ? (
                <Group className="panel session-bar" justify="space-between" wrap="nowrap">
                  <Receipt last={receiptOf} />
                  <Button ref={next} onClick={goOn} style={{ flexShrink: 0 }} rightSection={<Key of={SESSION.next} />}>
                    {t("Next")}
                  </Button>
                </Group>
              ) : Task !== undefined ? null : Decision === undefined ? (
                <Failure error={new Error(t("This page cannot ask questions of type {{type}}", { type: item.question }))} />
              ) : (
                <Decision draft={draft} change={change} press={press} disabled={session.trouble !== null} writing={writing?.ticket === item.ticket} box={box} />
              )}
              {item === undefined && reply !== undefined && <NothingLeft reply={reply} adjudicating={adjudicating} onUndo={undo} onAnswers={listingIs.open} />}
            </div>
          </div>
        </ImagesFrom>
      </div>
      <Later wanted={help}>
        <KeyHelp opened={help} onClose={helpIs.close} groups={keyGroups(item, words, types, adjudicating)} keys={keys} onKeys={setKeys} pause={pause} onPause={setPause} />
      </Later>
      <SkipDialog opened={skipping} onClose={skippingIs.close} onSkip={(skip) => void decide({ skip })} />
      <Later wanted={noting}>
        <NoteDialog key={item?.ticket} queue={queue} item={item} text={draft.note} onText={(note) => change({ note })} opened={noting} onClose={notingIs.close} />
      </Later>
      <Later wanted={listing}>
        <OwnAnswers
          queue={queue}
          person={person}
          seen={reply?.progress.answered ?? 0}
          opened={listing}
          onClose={listingIs.close}
          onChange={({ ticket }) => {
            listingIs.close();
            setShown(null);
            void session.revise(ticket);
          }}
        />
      </Later>
    </>
  );
}

/** Loaded when it is first wanted, and there from then on. */
function Later({ wanted, children }: { wanted: boolean; children: ReactNode }) {
  const [begun, setBegun] = useState(wanted);
  if (wanted && !begun) setBegun(true);
  return begun ? <Suspense fallback={null}>{children}</Suspense> : null;
}

/** An answer that is changed begins as it stands. */
function begunFrom(previous: Reply["previous"]): Partial<Draft> {
  if (previous === null || previous.said === "skip") return {};
  return { strength: previous.strength, rationale: previous.rationale };
}

function NothingLeft({ reply, adjudicating, onUndo, onAnswers }: { reply: Reply; adjudicating: boolean; onUndo: () => void; onAnswers: () => void }) {
  const [title, text] = adjudicating
    ? [t("No conflict is left for you"), t("Every item has a majority, is decided, is one that you voted on, or is before somebody else who adjudicates.")]
    : whyNothing(reply);
  return (
    <div className="panel">
      <Empty title={title!}>
        {text}
        <Group justify="center" gap="xs" mt="sm">
          {reply.progress.last !== null && (
            <Button variant="light" color="gray" onClick={onUndo}>
              {t("Undo the last vote")}
            </Button>
          )}
          {!adjudicating && reply.progress.mine > 0 && (
            <Button variant="light" color="gray" onClick={onAnswers}>
              {t("Your answers")}
            </Button>
          )}
          <Button component={Link} to="/annotate" variant="light">
            {t("All queues")}
          </Button>
        </Group>
      </Empty>
    </div>
  );
}
