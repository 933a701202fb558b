import { describe, expect, it, vi } from "vitest";

import { Problem } from "../../../api/problems";
import type { Schemas } from "../../../api/client";
import { deliver, dismissRefused, keepVote, keptVotes, refusedVotes, type KeptVote } from "./outbox";

const receipt = { ticket: "1-1-vote", said: "first", repeated: false, opinions: [], votes: [] } as const;
const stored = { receipt, next: null } as unknown as Schemas["VoteReply"];

function vote(ticket: string, person = "ada", at = 0): KeptVote {
  return { queue: "first-round", at, body: { person, ticket, seal: "s", choice: "first", strength: 2, rationale: "clearer", seconds: 3, principles: [] } };
}

describe("the outbox", () => {
  it("keeps a vote from before it is sent until it is acknowledged", async () => {
    const one = vote("1-1-vote");
    expect(keepVote(one)).toBe(true);
    const reply = await deliver(one, async () => {
      expect(keptVotes("ada")).toEqual([one]);
      return stored;
    });
    expect(reply).toEqual({ reply: stored });
    expect(keptVotes("ada")).toEqual([]);
  });

  it("sends the same vote again through whatever passes", async () => {
    const troubles = [
      new Problem(0, "unreachable", "the server cannot be reached"),
      new Problem(503, "busy", "held by process 7", 0.01),
      new Problem(500, "backend", "the server failed"),
      new Problem(401, "unauthorized", "sign in first"),
      new Problem(403, "forbidden", "of another session"),
      new SyntaxError("half a reply"),
    ];
    const sent: KeptVote[] = [];
    const told: string[] = [];
    const one = vote("1-1-vote");
    keepVote(one);
    const left = [...troubles];
    const send = async (asked: KeptVote) => {
      sent.push(asked);
      const trouble = left.shift();
      if (trouble !== undefined) throw trouble;
      return stored;
    };
    const came = await deliver(one, send, { firstWaitMs: 1, onTrouble: (problem) => told.push(problem.message) });
    expect(came).toEqual({ reply: stored });
    expect(sent).toEqual(Array(troubles.length + 1).fill(one));
    expect(told).toHaveLength(troubles.length);
    expect(keptVotes("ada")).toEqual([]);
  });

  it.each([400, 404, 409, 413, 422])("keeps what is refused with %d, and what was written, until its person has seen it", async (status) => {
    const one = vote("1-1-vote");
    keepVote(one);
    const send = vi.fn(() => Promise.reject(new Problem(status, "conflict", "the time for this item ran out")));
    const came = await deliver(one, send);
    expect(send).toHaveBeenCalledOnce();
    expect(came).toHaveProperty("refused.detail", "the time for this item ran out");
    expect(keptVotes("ada")).toEqual([]);
    const [refused] = refusedVotes("ada");
    expect(refused?.body.rationale).toBe("clearer");
    dismissRefused(refused!);
    expect(refusedVotes("ada")).toEqual([]);
  });

  it("leaves a vote alone while somebody else is signed in", async () => {
    keepVote(vote("1-1-vote"));
    const came = await deliver(vote("1-1-vote"), () => Promise.reject(new Problem(403, "another_person", "this vote is ada's")));
    expect(came).toEqual({ stopped: true });
    expect(keptVotes("ada")).toHaveLength(1);
  });

  it("does not send again what another tab delivered meanwhile", async () => {
    const [first, second] = [vote("1-1-vote"), vote("2-1-vote")];
    keepVote(first);
    keepVote(second);
    const send = vi.fn(async (asked: KeptVote) => {
      // While this one is under way another tab delivers the second, which is taken back there.
      if (asked.body.ticket === "1-1-vote") await deliver(second, async () => stored);
      return stored;
    });
    const came = [];
    for (const kept of keptVotes("ada")) came.push(await deliver(kept, send, { whileKept: true }));
    expect(came).toEqual([{ reply: stored }, { stopped: true }]);
    expect(send).toHaveBeenCalledOnce();
    expect(refusedVotes("ada")).toEqual([]);
  });

  it("finds after a reload one person's votes, oldest first, and nothing else in the storage", () => {
    localStorage.setItem("assay.single-keys", "true");
    keepVote(vote("2-1-vote", "ada", 20));
    keepVote(vote("1-1-vote", "ada", 10));
    keepVote(vote("1-1-vote", "ada: b", 5));
    keepVote(vote("1-1-vote", "ada", 10)); // the same again
    expect(keptVotes("ada").map((kept) => kept.body.ticket)).toEqual(["1-1-vote", "2-1-vote"]);
    expect(keptVotes("ada: b")).toHaveLength(1);
  });

  it("still sends where the browser stores nothing, and says so", async () => {
    const full = vi.spyOn(Storage.prototype, "setItem").mockImplementation(() => {
      throw new DOMException("full", "QuotaExceededError");
    });
    try {
      expect(keepVote(vote("1-1-vote"))).toBe(false);
      expect(await deliver(vote("1-1-vote"), async () => stored)).toEqual({ reply: stored });
    } finally {
      full.mockRestore();
    }
  });
});
