import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";

import { api, body, type Schemas } from "../../../api/client";
import type { Problem } from "../../../api/problems";
import { t } from "../../../i18n";
import { deliver, dismissRefused, keepVote, keptVotes, refusedVotes, type KeptVote, type RefusedVote } from "./outbox";
import { sendVote } from "./send";
import { useTrouble } from "./useTrouble";
import { answered } from "../principles/answers";
import { draftName, EMPTY, saveDraft, type PrincipleDraft } from "../drafts";
import type { Choice, Item, SkipReason } from "../words";

export type Reply = Schemas["AnnotationReply"];
type Receipt = Schemas["ReceiptReply"];

interface Decision {
  choice?: Choice;
  skip?: SkipReason;
  strength: number | null;
  rationale: string;
  principles: PrincipleDraft[];
  /** The answer to what is no pair. */
  answer?: Record<string, unknown>;
  /** As the draft had it. */
  response: unknown;
  seconds: number;
}

/** The last acknowledged vote, with what may be seen since. */
export interface LastVote {
  receipt: Receipt;
  strength: number | null;
  item: Item;
  decision: Decision;
}

export interface SessionState {
  reply: Reply | undefined;
  error: Error | null;
  /** A vote is under way: nothing else is taken meanwhile. */
  sending: boolean;
  /** Why a vote is not through yet; it is kept and sent again. */
  trouble: Problem | null;
  /** Why an undo or the like did not work. */
  notice: string | null;
  /** This browser stores nothing: an unsent vote would not outlive a reload. */
  forgetful: boolean;
  last: LastVote | null;
  /** Others' votes, for an adjudicator who asked for them before deciding. */
  revealed: Schemas["RevealedOpinion"][] | null;
  refused: RefusedVote[];
  decide: (item: Item, decision: Decision) => Promise<LastVote | null>;
  undo: () => Promise<boolean>;
  reveal: () => Promise<void>;
  release: () => Promise<void>;
  /** Opens an answer of one's own again, by its ticket; it stands until the next one is cast. */
  revise: (ticket: string) => Promise<void>;
  /** Leaves the item that is open as it is, for the next one. */
  pass: () => Promise<void>;
  dismiss: (vote: RefusedVote) => void;
  refetch: () => void;
}

/**
 * One person's session at a queue: what is before them, and every way on from it. `wanted`: the number of an item to
 * begin with.
 */
export function useAnnotationSession(queue: string, person: string, adjudicating: boolean, wanted: number | null = null): SessionState {
  const queries = useQueryClient();
  const [notice, setNotice] = useState<string | null>(null);
  const [sending, setSending] = useState(false);
  const [trouble, onTrouble] = useTrouble();
  const [forgetful, setForgetful] = useState(false);
  const [last, setLast] = useState<LastVote | null>(null);
  const [revealed, setRevealed] = useState<Schemas["RevealedOpinion"][] | null>(null);
  const [refused, setRefused] = useState(() => refusedVotes(person));
  const underWay = useRef(false); // a key may come before React has drawn `sending`
  const decided = useRef<string | null>(null); // or before it has drawn the next item
  const key = ["session", person, queue, adjudicating, wanted];
  const path = { params: { path: { queue } } };

  const { data, failureReason: error } = useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => {
      for (const vote of keptVotes(person)) await deliver(vote, sendVote, { signal, onTrouble, whileKept: true });
      signal.throwIfAborted(); // who has left takes no item
      onTrouble(null);
      setRefused(refusedVotes(person));
      if (adjudicating) return body(api.POST("/api/annotate/queues/{queue}/conflict", path));
      return body(api.POST("/api/annotate/queues/{queue}/item", { params: { path: { queue }, query: wanted === null ? {} : { item: wanted } } }));
    },
    staleTime: Infinity,
    gcTime: 0, // somebody who comes back asks anew
    refetchInterval: (query) => (query.state.data?.empty === "waiting" ? 10_000 : false),
  });

  const show = (reply: Reply) => {
    setRevealed(null);
    queries.setQueryData(key, reply);
    if (wanted !== null) queries.setQueryData([...key.slice(0, -1), null], reply); // what follows is no longer the one that was wanted
  };

  /** Nothing else begins before it has ended. */
  const alone = async <T,>(work: () => Promise<T>): Promise<T | null> => {
    if (underWay.current) return null;
    underWay.current = true;
    setSending(true);
    setNotice(null);
    try {
      return await work();
    } catch (problem) {
      setNotice(problem instanceof Error ? problem.message : t("that did not work"));
      return null;
    } finally {
      underWay.current = false;
      setSending(false);
    }
  };

  const decide = (item: Item, decision: Decision) =>
    alone(async () => {
      if (decided.current === item.ticket) return null;
      decided.current = item.ticket;
      const { choice, skip, rationale, seconds } = decision;
      // Who passes an item on says nothing of it.
      const principles = skip === "later" || skip === "not_for_me" ? [] : answered(decision.principles);
      const strength = choice === "first" || choice === "second" ? decision.strength : null;
      const vote: KeptVote = {
        queue,
        at: Date.now(),
        body: { person, ticket: item.ticket, seal: item.seal, choice, skip, strength, rationale, seconds, principles, response: decision.answer as Schemas["VoteBody"]["response"], guideline_version: data?.guideline_version },
      };
      setForgetful(!keepVote(vote));
      const came = await deliver(vote, sendVote, { onTrouble });
      onTrouble(null);
      if (!("reply" in came)) decided.current = null;
      if ("stopped" in came) return null;
      if ("refused" in came) {
        setRefused(refusedVotes(person));
        await queries.invalidateQueries({ queryKey: key });
        return null;
      }
      const lastVote = { receipt: came.reply.receipt, strength, item, decision };
      setLast(lastVote);
      if (came.reply.next === null) await queries.invalidateQueries({ queryKey: key });
      else show(came.reply.next);
      return lastVote;
    });

  const undo = async () => {
    const ticket = data?.progress.last;
    if (ticket == null) return false;
    const held = data?.item?.ticket ?? null;
    await alone(async () => {
      const again = await body(api.POST("/api/annotate/queues/{queue}/undo", { ...path, body: { ticket, held } }));
      if (again.item !== null && last?.receipt.ticket === ticket && last.item.first === again.item.first) {
        // What was written and answered is there again, to be changed and not to be done anew.
        const { strength, rationale, principles, response } = last.decision;
        saveDraft(draftName(person, queue, again.item), { ...EMPTY, strength, rationale, principles, response });
      }
      show(again);
      setLast(null);
    });
    return true;
  };

  const reveal = async () => {
    const item = data?.item;
    if (item == null || item.role === "vote") return;
    await alone(async () => {
      const vote = await body(
        api.POST("/api/annotate/queues/{queue}/reveal", { ...path, body: { ticket: item.ticket } }),
      );
      show({ ...data!, item: vote.item });
      setRevealed(vote.votes);
    });
  };

  const revise = async (ticket: string) => {
    await alone(async () => {
      show(await body(api.POST("/api/annotate/queues/{queue}/revision", { ...path, body: { ticket } })));
      setLast(null);
    });
  };

  const pass = async () => {
    await alone(async () => {
      await release();
      await queries.invalidateQueries({ queryKey: key });
    });
  };

  const release = async () => {
    const ticket = data?.item?.ticket;
    if (ticket != null) await api.POST("/api/annotate/queues/{queue}/release", { ...path, body: { ticket } });
  };

  return {
    reply: data,
    error,
    sending,
    trouble,
    notice,
    forgetful,
    last,
    revealed,
    refused,
    decide,
    undo,
    reveal,
    release,
    revise,
    pass,
    dismiss: (vote) => {
      dismissRefused(vote);
      setRefused(refusedVotes(person));
    },
    refetch: () => void queries.invalidateQueries({ queryKey: key }),
  };
}
