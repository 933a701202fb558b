import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import type { Schemas } from "../../../api/client";
import { renderAt } from "../../../testing/render";
import { AnnotationSession } from "../session/AnnotationSession";

const STEPS = "First, 2 + 2 = 4.\n\nThen 4 + 1 = 6. 🙂\n\nSo it is 6.";
const option = (name: string, key: string, label: string) => ({ name, key, label, short: name });
const words = {
  choices: [option("first", "a", "A is better"), option("tie", "t", "Tie")],
  skip: option("skip", "s", "Skipped"),
  skips: [option("not_for_me", "n", "Not my field")],
  counted_skips: [],
  strengths: ["barely", "slightly", "clearly", "far"],
};
const values = [
  { ...option("correct", "y", "Correct"), value: 1 },
  { ...option("neutral", "m", "Neutral, or not sure"), value: 0 },
  { ...option("wrong", "n", "Wrong"), value: -1 },
];
const questionTypes: Schemas["QuestionTypeReply"][] = [
  { name: "pair", component: "PairPreference", words },
  { name: "steps", component: "StepLabels", words: { values } },
];
const TURNS: Schemas["ShownMessage"][] = [
  { role: "assistant", content: "alive?" },
  { role: "user", content: "yes" },
  { role: "assistant", content: "cow" },
];
let question: string;
let sent: Schemas["VoteBody"][];

const asked: Record<string, Pick<Schemas["AnnotationItem"], "component" | "responses" | "settings">> = {
  rating: { component: "ResponseRating", responses: [STEPS], settings: { scales: [{ aspect: "helpfulness", low: 1, high: 5 }, { aspect: "truth", low: 0, high: 3 }] } },
  steps: { component: "StepLabels", responses: [STEPS], settings: { steps: [[0, 17], [19, 36], [38, 49]] } },
  turns: { component: "StepLabels", responses: ["assistant: alive?\n\nuser: yes\n\nassistant: cow"], settings: { steps: [[11, 17], [41, 44]], by_turns: true } },
  spans: { component: "SpanMarking", responses: [STEPS], settings: { labels: ["slip", "style"] } },
  ranking: { component: "ResponseRanking", responses: ["One.", "Two.", "Three."], settings: {} },
};

function reply(number: number): Schemas["AnnotationReply"] {
  return {
    item: {
      ...{ ticket: `${number}-1-vote`, seal: `seal ${number}`, role: "vote", prompt: [{ role: "user", content: `Question ${number}?` }] },
      ...{ first: STEPS, second: "", turns: [null, null], attributes: null, guideline: "", checked: null, reason: "", principles: [], expires_at: 0, number, suggestions: [] },
      question,
      ...asked[question]!,
      ...(question === "turns" ? { question: "steps", turns: [TURNS] } : {}),
    },
    progress: { share: 0.2, mine: number - 1, passed: 0, last: null, waiting: null, answered: number - 1, expected: 60, qualifying: false },
    ...{ title: "q", guideline_version: 1, suggestions: "never", previous: null, reason: "" },
    guideline: "",
    lease_seconds: 1800,
    empty: null,
  };
}

const json = (value: unknown, status = 200) => new Response(JSON.stringify(value), { status, headers: { "Content-Type": "application/json" } });

beforeEach(() => {
  sent = [];
  localStorage.clear();
  vi.stubGlobal("scrollTo", () => {});
  vi.stubGlobal("fetch", async (request: Request) => {
    const { pathname } = new URL(request.url);
    if (pathname.endsWith("/item")) return json(reply(1 + sent.length));
    if (pathname.endsWith("/question-types")) return json(questionTypes);
    if (pathname.endsWith("/votes")) {
      const body = (await request.json()) as Schemas["VoteBody"];
      sent.push(body);
      return json({ receipt: { ticket: body.ticket, said: "answered", repeated: false, opinions: [], votes: [] }, next: reply(1 + sent.length) });
    }
    return json({ detail: "not here" }, 404);
  });
});
afterEach(() => vi.unstubAllGlobals());

async function open(name: string) {
  question = name;
  const { container } = renderAt(<AnnotationSession queue="q" person="ada" adjudicating={false} />);
  await screen.findByText("Question 1?");
  expect((await axe(container)).violations).toEqual([]);
  return userEvent.setup();
}

describe("questions on single responses and lists", () => {
  it("rates on every scale by digits, and takes nothing that is off a scale", async () => {
    const user = await open("rating");
    expect(screen.getByRole("button", { name: /Store/ })).toBeDisabled();
    await user.keyboard("5-z");
    expect(screen.getByText("Next: truth")).toBeInTheDocument();
    await user.keyboard("43{Enter}");
    await screen.findByText("Question 2?");
    expect(sent[0]).toEqual(expect.objectContaining({ ticket: "1-1-vote", response: { ratings: { helpfulness: 5, truth: 3 } } }));
    expect(within(screen.getByLabelText("Last vote")).getByText("Answered")).toBeInTheDocument();
  });

  it("labels steps one after the other, and may stop at the first wrong one", async () => {
    const user = await open("steps");
    expect(screen.getAllByRole("listitem").map((one) => one.textContent)).toEqual(["First, 2 + 2 = 4.", "Then 4 + 1 = 6. 🙂", "So it is 6."]);
    await user.keyboard("y");
    expect(screen.getByRole("button", { name: /Store/ })).toBeDisabled();
    await user.click(screen.getByRole("button", { name: /Wrong/ }));
    await user.click(screen.getByRole("button", { name: /Store/ }));
    await screen.findByText("Question 2?");
    expect(sent[0]!.response).toEqual({ steps: [1, -1] });
  });

  it("labels turns, each with what followed it", async () => {
    const user = await open("turns");
    expect(screen.getAllByRole("listitem").map((one) => one.textContent)).toEqual(["assistantalive?useryes", "assistantcow"]);
    await user.keyboard("yn{Enter}");
    await screen.findByText("Question 2?");
    expect(sent[0]!.response).toEqual({ steps: [1, -1] });
  });

  it("marks typed words by their characters, and stores that there is nothing", async () => {
    const user = await open("spans");
    await user.type(screen.getByLabelText("Words, as they are written"), "So it is");
    await user.click(screen.getByRole("button", { name: /^style/ }));
    expect(within(screen.getByLabelText("Marked")).getByText("So it is")).toBeInTheDocument();
    await user.type(screen.getByLabelText("Words, as they are written"), "not there");
    await user.click(screen.getByRole("button", { name: /^slip/ }));
    expect(screen.getByRole("alert")).toHaveTextContent("not in the response");
    await user.click(screen.getByRole("button", { name: /Store/ }));
    await screen.findByText("Question 2?");
    expect(sent[0]!.response).toEqual({ spans: [{ start: 38, end: 46, label: "style" }] });
    await user.click(screen.getByRole("button", { name: /Store/ }));
    await screen.findByText("Question 3?");
    expect(sent[1]!.response).toEqual({ spans: [] });
  });

  it("ranks by letters, ties included, and keeps what was begun", async () => {
    const user = await open("ranking");
    await user.keyboard("c=b");
    expect(screen.getByLabelText("Order")).toHaveTextContent("C = B");
    expect(localStorage.getItem("assay.draft:ada:q:1-1-vote:seal 1")).toContain('"groups":[[2,1]]');
    await user.keyboard("a{Enter}");
    await screen.findByText("Question 2?");
    expect(sent[0]!.response).toEqual({ ranks: [2, 1, 1] });
  });

  it("is passed on with a reason like any item", async () => {
    const user = await open("rating");
    await user.keyboard("sn");
    await screen.findByText("Question 2?");
    expect(sent[0]).toEqual(expect.objectContaining({ skip: "not_for_me" }));
  });
});
