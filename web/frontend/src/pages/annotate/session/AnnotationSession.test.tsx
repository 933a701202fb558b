import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import type { Schemas } from "../../../api/client";
import { renderAt } from "../../../testing/render";
import { keepVote, keptVotes } from "./outbox";
import { AnnotationSession } from "./AnnotationSession";

type Reply = Schemas["AnnotationReply"];

function reply(number: number): Reply {
  return {
    item: {
      ticket: `${number}-1-vote`,
      seal: `seal ${number}`,
      role: "vote",
      prompt: [{ role: "user", content: `Question ${number}?` }],
      first: `One answer to ${number}.`,
      second: `Another answer to ${number}.`,
      turns: [null, null],
      attributes: null,
      guideline: "",
      checked: null,
      reason: "judges disagree",
      principles: number === 1 ? ["is clear"] : [],
      expires_at: 0,
      question: number === 2 ? "reasoned.py:Reasoned" : "pair",
      component: "PairPreference",
      responses: [],
      settings: {},
      number,
      suggestions: [],
    },
    progress: { share: 0.2, mine: number - 1, passed: number - 1, last: number > 1 ? `${number - 1}-1-vote` : null, waiting: null, answered: 2 * (number - 1), expected: 60, qualifying: false },
    ...{ title: "q", guideline_version: 1, suggestions: "never", previous: null, reason: "" },
    guideline: "Prefer what **helps**:\n\n- first $x^2$",
    lease_seconds: 1800,
    empty: null,
  };
}

const ownFigures: Schemas["OwnFigures"] = {
  ...{ votes: 20, block: 20, checks: 5, passed: 4, streak: 3, compared: 8, agreed: 6, median_seconds: 12.3 },
  ...{ accuracy: null, agreement: null, first_rate: null },
};
const ben: Schemas["RevealedOpinion"] = {
  ...{ by: "ben", said: "skip", answer: "", strength: null, rationale: "cannot_decide: both are vague" },
  principles: [{ place: "second", principle: "is clear", answer: "partially", evidence: "Another answer" }],
};
const option = (name: string, key: string, label: string) => ({ name, key, label, short: name });
const questionTypes: Schemas["QuestionTypeReply"][] = [
  {
    name: "pair",
    component: "PairPreference",
    words: {
      choices: [option("first", "a", "A is better"), option("second", "b", "B is better"), option("tie", "t", "Tie"), option("both_good", "g", "Both good"), option("both_bad", "x", "Both bad")],
      skip: option("skip", "s", "Skipped"),
      skips: [option("cannot_decide", "c", "I cannot decide which is better"), option("broken", "k", "The texts are broken or unreadable"), option("not_for_me", "n", "Not my field, or I should not judge this one"), option("later", "l", "Not now; somebody else may take it")],
      counted_skips: ["broken", "cannot_decide"],
      strengths: ["barely", "slightly", "clearly", "far"],
    },
  },
  { name: "principles", component: "PrincipleFulfilment", words: {} },
];
let sent: Schemas["VoteBody"][];
let taken: number;
let answer: (body: Schemas["VoteBody"]) => Response;
/** What a test serves itself. */
let served: (url: URL, request: Request) => Response | undefined | Promise<Response | undefined>;

const json = (value: unknown, status = 200) => new Response(JSON.stringify(value), { status, headers: { "Content-Type": "application/json" } });
const stored = (body: Schemas["VoteBody"]) =>
  json({ receipt: { ticket: body.ticket, said: "second", repeated: false, opinions: [], votes: [] }, next: reply(2) });

beforeEach(() => {
  sent = [];
  taken = 0;
  answer = stored;
  served = () => undefined;
  vi.stubGlobal("scrollTo", () => {});
  vi.stubGlobal("fetch", async (request: Request) => {
    const { pathname } = new URL(request.url);
    const own = await served(new URL(request.url), request);
    if (own !== undefined) return own;
    if (pathname.endsWith("/item")) {
      taken += 1;
      return json(reply(1 + sent.length));
    }
    if (pathname.endsWith("/votes")) {
      const body = (await request.json()) as Schemas["VoteBody"];
      sent.push(body);
      return answer(body);
    }
    if (pathname.endsWith("/question-types")) return json(questionTypes);
    if (pathname.endsWith("/own")) return json(ownFigures);
    const conflict = { ...reply(1), item: { ...reply(1).item!, role: "blind" as const }, progress: { share: 1, mine: 0, passed: 0, last: null, waiting: 2 } };
    if (pathname.endsWith("/conflict")) return json(conflict);
    if (pathname.endsWith("/reveal")) return json({ item: { ...conflict.item, role: "open" }, votes: [ben] });
    return json({ detail: "not here" }, 404);
  });
});
afterEach(() => vi.unstubAllGlobals());

const session = <AnnotationSession queue="first-round" person="ada" adjudicating={false} />;

describe("a session", () => {
  it("votes by single keys, with the strength pressed before, and comes to the next item", async () => {
    const { container } = renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    expect((await axe(container)).violations).toEqual([]);
    await user.keyboard("2b");
    await screen.findByText("Question 2?");
    expect(sent).toEqual([
      expect.objectContaining({ person: "ada", ticket: "1-1-vote", seal: "seal 1", choice: "second", strength: 2, rationale: "" }),
    ]);
    expect(within(screen.getByLabelText("Last vote")).getByText("B is clearly better")).toBeInTheDocument();
  });

  it("draws the guideline as the texts", async () => {
    renderAt(session);
    const guideline = await screen.findByRole("region", { name: "Guideline" });
    expect(within(guideline).getByText("helps").tagName).toBe("STRONG");
    await waitFor(() => expect(within(guideline).getByRole("listitem").querySelector(".katex")).not.toBeNull());
    expect(guideline).not.toHaveTextContent("**");
  });

  it("tells of gold checks passed in a row, at the top too", async () => {
    renderAt(session);
    expect(await screen.findByText("3 gold checks in a row")).toBeInTheDocument();
    expect(screen.getByLabelText("You")).toHaveTextContent("Gold checks passed: 4 of 5, the last 3 in a row");
  });

  it("takes no key for a decision while somebody writes, and keeps what they wrote for the next time", async () => {
    const first = renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("r");
    await waitFor(() => expect(screen.getByLabelText("Rationale")).toHaveFocus());
    await user.keyboard("abort");
    expect(sent).toEqual([]);
    first.unmount();
    renderAt(session);
    expect(await screen.findByLabelText("Rationale")).toHaveValue("abort");
    await user.keyboard("g");
    await screen.findByText("Question 2?");
    expect(sent[0]).toMatchObject({ choice: "both_good", strength: null, rationale: "abort" });
  });

  it("skips with a reason", async () => {
    renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("s");
    const dialog = await screen.findByRole("dialog");
    await waitFor(() => expect(within(dialog).getByRole("button", { name: "I cannot decide which is better" })).toHaveFocus());
    await user.keyboard("k");
    await screen.findByText("Question 2?");
    expect(sent[0]).toMatchObject({ skip: "broken" });
    expect(screen.getByText("2 of 60")).toBeInTheDocument();
    expect(screen.getByText("1 passed on")).toBeInTheDocument();
    expect(within(screen.getByLabelText("Last vote")).getByText(/The texts are broken or unreadable/)).toBeInTheDocument();
    expect(sent[0]).not.toHaveProperty("choice");
  });

  it("sends what was said of principles with the vote, and keeps it over a reload", async () => {
    const first = renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("p1{ArrowDown}3");
    first.unmount();
    renderAt(session);
    await screen.findByText("Principles, 2 of 2 answered");
    await user.keyboard("a");
    await screen.findByText("Question 2?");
    expect(screen.queryByLabelText("Principles")).not.toBeInTheDocument();
    expect(sent[0]).toMatchObject({
      choice: "first",
      strength: null,
      principles: [
        { principle: "is clear", place: "first", answer: "yes", evidence: null },
        { principle: "is clear", place: "second", answer: "no", evidence: null },
      ],
    });
  });

  it("tells an adjudicator how many wait, and when asked what others said, of principles too", async () => {
    renderAt(<AnnotationSession queue="first-round" person="ada" adjudicating />);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    expect(screen.getByText(/2 items without a majority, 0 decided by you/)).toBeInTheDocument();
    expect(screen.queryByText(/ben/)).not.toBeInTheDocument();
    await user.keyboard("v");
    const others = await screen.findByText(/ben:/);
    expect(others).toHaveTextContent(/ben: Skipped. I cannot decide which is better: both are vague\s*B, is clear: partly/);
    expect(within(others).getByText("Another answer")).toBeInTheDocument();
  });

  it("keeps the focus by a decision, for who works without single keys", async () => {
    localStorage.setItem("assay.single-keys", "false");
    const judge: Schemas["RevealedOpinion"] = { by: "judge", said: "first", answer: "", strength: null, rationale: "clearer", principles: [] };
    answer = (body) => json({ receipt: { ticket: body.ticket, said: "second", repeated: false, opinions: [judge], votes: [] }, next: reply(2) });
    renderAt(session);
    const user = userEvent.setup();
    (await screen.findByRole("button", { name: "B is better" })).focus();
    await user.keyboard("{Enter}");
    await waitFor(() => expect(screen.getByRole("button", { name: "Next" })).toHaveFocus());
    await user.keyboard("{Enter}");
    await screen.findByText("Question 2?");
    await waitFor(() => expect(screen.getByRole("group", { name: "Item" })).toHaveFocus());
    expect(sent).toHaveLength(1);
  });

  it("takes no item for somebody who left while a vote could not be sent", async () => {
    const body = { person: "ada", ticket: "9-1-vote", seal: "s", choice: "first", strength: null, rationale: "", seconds: 3, principles: [] } as const;
    keepVote({ queue: "first-round", at: 0, body: { ...body, principles: [] } });
    answer = () => json({ detail: "the store is held" }, 503);
    const left = renderAt(session);
    await screen.findByText(/the store is held/);
    expect(taken).toBe(0);
    left.unmount();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(taken).toBe(0);
    expect(keptVotes("ada")).toHaveLength(1);
  });

  it("sends none with an item that is passed on", async () => {
    renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("p1s");
    await screen.findByRole("dialog");
    await user.keyboard("l");
    await screen.findByText("Question 2?");
    expect(sent[0]).toMatchObject({ skip: "later", principles: [] });
  });

  it("shows a vote that the server will not take, with its rationale", async () => {
    answer = () => json({ code: "conflict", detail: "the time for this item ran out" }, 409);
    renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("r");
    await user.type(await screen.findByLabelText("Rationale"), "B invents a source");
    await user.keyboard("{Escape}a");
    const alert = await screen.findByRole("alert");
    expect(alert).toHaveTextContent("the time for this item ran out");
    expect(alert).toHaveTextContent("B invents a source");
    await user.click(within(alert).getByRole("button", { name: "Dismiss" }));
    expect(screen.queryByRole("alert")).not.toBeInTheDocument();
  });

  it("opens an earlier answer again, which stands until there is another", async () => {
    const answer: Schemas["OwnAnswerReply"] = {
      ...{ ticket: "9-1-vote", item: 9, excerpt: "Question 9?", question: "pair", said: "first", answer: "", skip: "", strength: 2 },
      ...{ rationale: "runs", seconds: 3, at: 1_700_000_000, changes: 0, notes: 1, guideline_version: 1 },
    };
    served = ({ pathname }) => {
      if (pathname.endsWith("/answers")) return json({ answers: [answer], total: 1, changeable: true });
      if (pathname.endsWith("/revision")) return json({ ...reply(9), previous: answer });
    };
    renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("h");
    const list = await screen.findByRole("dialog");
    expect(await within(list).findByText("A is clearly better")).toBeInTheDocument();
    expect((await axe(list)).violations).toEqual([]);
    await user.click(within(list).getByRole("button", { name: "Change the answer to item 9" }));
    await screen.findByText("You have answered this item");
    expect(screen.getByLabelText("Rationale")).toHaveValue("runs");
    await user.keyboard("b");
    await screen.findByText("Question 2?");
    expect(sent).toEqual([expect.objectContaining({ ticket: "9-1-vote", choice: "second", strength: 2, rationale: "runs", guideline_version: 1 })]);
  });

  it("tells the curators about an item, with a name of its own for each note, and keeps what is begun", async () => {
    const told: { key: string; kind: string; text: string; ticket: string }[] = [];
    served = async ({ pathname }, request) => {
      if (!pathname.endsWith("/notes")) return undefined;
      if (request.method === "GET") return json([]);
      told.push((await request.json()) as (typeof told)[number]);
      return json({ id: "n", item: 1, excerpt: "", person: "ada", kind: "flag", text: "", at: 0, resolved_by: null, resolved_at: null, reply: "" });
    };
    const first = renderAt(session);
    const user = userEvent.setup();
    await screen.findByText("Question 1?");
    await user.keyboard("f");
    await user.type(await screen.findByRole("textbox", { name: /What is wrong/ }), "cut off");
    first.unmount();
    renderAt(session);
    await screen.findByText("Question 1?");
    for (const button of ["Comment only", "Flag the item"]) {
      await user.keyboard("f");
      await user.click(await screen.findByRole("button", { name: button }));
      await waitFor(() => expect(screen.queryByRole("dialog")).not.toBeInTheDocument());
    }
    expect(told).toMatchObject([{ kind: "comment", text: "cut off", ticket: "1-1-vote" }, { kind: "flag", text: "" }]);
    expect(told[0]!.key).not.toBe(told[1]!.key);
    expect(sent).toEqual([]);
  });

  it("begins with the item of a link, and says when that one is not open", async () => {
    const asked: string[] = [];
    served = ({ pathname, search }) => {
      if (pathname.endsWith("/item")) asked.push(search);
      return search === "?item=7" ? json({ detail: "that item is not open to you" }, 409) : undefined;
    };
    const onLeft = vi.fn();
    renderAt(<AnnotationSession queue="first-round" person="ada" adjudicating={false} wanted={7} onLeft={onLeft} />);
    await screen.findByText("that item is not open to you");
    await userEvent.setup().click(screen.getByRole("button", { name: "Next item" }));
    expect(asked).toEqual(["?item=7"]);
    expect(onLeft).toHaveBeenCalledOnce();
  });

  it("draws suggestions before the vote where the queue shows them", async () => {
    const item = { ...reply(1).item!, suggestions: [{ by: "judge", said: "second", answer: "", strength: null, rationale: "shorter", principles: [] }] };
    served = ({ pathname }) => (pathname.endsWith("/item") ? json({ ...reply(1), item, suggestions: "before" }) : undefined);
    renderAt(session);
    expect(await screen.findByRole("region", { name: "Suggestions" })).toHaveTextContent("judge: B is better. shorter");
  });
});
