import { Problem } from "../../../api/problems";
import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";

/**
 * Votes on their way: in the browser's storage from before they are sent until the server has said that they are
 * durable. They outlive a reload, a server that restarts and a session that ends. A vote that the server refuses for good is
 * kept apart, with its rationale, until its person has seen it. The server counts a vote that it gets twice once.
 */
export interface KeptVote {
  queue: string;
  body: Schemas["VoteBody"];
  /** When it was cast, ms since the epoch. */
  at: number;
}

export interface RefusedVote extends KeptVote {
  /** The server's words. */
  detail: string;
}

export type Delivered = { reply: Schemas["VoteReply"] } | { refused: RefusedVote } | { stopped: true };

export type Send = (vote: KeptVote) => Promise<Schemas["VoteReply"]>;

const VOTE = "assay.vote";
const REFUSED = "assay.refused";
const LONGEST_WAIT_MS = 5000;

/** Whether the browser keeps it; without that it is still sent, but a reload would lose it. */
export function keepVote(vote: KeptVote): boolean {
  return write(nameOf(VOTE, vote), vote);
}

/** A person's unsent votes, oldest first. */
export function keptVotes(person: string): KeptVote[] {
  return read<KeptVote>(VOTE, person);
}

export function refusedVotes(person: string): RefusedVote[] {
  return read<RefusedVote>(REFUSED, person);
}

/** Its person has seen it. */
export function dismissRefused(vote: RefusedVote): void {
  erase(nameOf(REFUSED, vote));
}

/** The answer would be the same however often it is sent: the item was given away, or the vote makes no sense. */
export function isRefusal(error: unknown): error is Problem {
  return error instanceof Problem && [400, 404, 409, 413, 422].includes(error.status);
}

/**
 * Send a kept vote until it is acknowledged or refused for good. `onTrouble`: told why it is not through yet, before each
 * wait. Stopping leaves it kept. `whileKept`: only as long as no other tab has delivered it; what it said may have been
 * taken back since.
 */
export async function deliver(
  vote: KeptVote,
  send: Send,
  options: { signal?: AbortSignal; onTrouble?: (problem: Problem) => void; firstWaitMs?: number; whileKept?: boolean } = {},
): Promise<Delivered> {
  let wait = options.firstWaitMs ?? 300;
  for (;;) {
    if (options.signal?.aborted || (options.whileKept && !isKept(vote))) return { stopped: true };
    try {
      const reply = await send(vote);
      erase(nameOf(VOTE, vote));
      return { reply };
    } catch (error) {
      if (isRefusal(error)) {
        const refused = { ...vote, detail: error.message };
        write(nameOf(REFUSED, vote), refused); // first: it is never in neither place
        erase(nameOf(VOTE, vote));
        return { refused };
      }
      const problem = error instanceof Problem ? error : new Problem(0, "unreachable", t("the server's reply made no sense"));
      if (problem.code === "another_person") return { stopped: true }; // kept until its own person is back
      options.onTrouble?.(problem);
      await pause(Math.max(wait, (problem.retryAfter ?? 0) * 1000), options.signal);
      wait = Math.min(LONGEST_WAIT_MS, wait * 1.6);
    }
  }
}

/** Each vote has an entry of its own, so that two tabs do not write over each other's. */
function nameOf(kind: string, vote: KeptVote): string {
  return `${prefix(kind, vote.body.person)}${encodeURIComponent(vote.queue)}:${vote.body.ticket}`;
}

function prefix(kind: string, person: string): string {
  return `${kind}:${encodeURIComponent(person)}:`;
}

function read<T extends KeptVote>(kind: string, person: string): T[] {
  const entries: T[] = [];
  try {
    for (let n = 0; n < localStorage.length; n++) {
      const name = localStorage.key(n);
      if (name?.startsWith(prefix(kind, person))) entries.push(JSON.parse(localStorage.getItem(name)!) as T);
    }
  } catch {
    // No storage, or an entry that is not ours: what could be read counts.
  }
  return entries.sort((one, two) => one.at - two.at);
}

function isKept(vote: KeptVote): boolean {
  try {
    return localStorage.getItem(nameOf(VOTE, vote)) !== null;
  } catch {
    return false;
  }
}

function write(name: string, value: unknown): boolean {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

function erase(name: string): void {
  try {
    localStorage.removeItem(name);
  } catch {
    // Then nothing was kept either.
  }
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      window.removeEventListener("online", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
    window.addEventListener("online", done);
  });
}
