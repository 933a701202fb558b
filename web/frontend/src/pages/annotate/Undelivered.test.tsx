import { Notifications, cleanNotifications } from "@mantine/notifications";
import { screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { SessionGate } from "../../app/SessionGate";
import { renderAt } from "../../testing/render";
import { keepVote, keptVotes, type KeptVote } from "./session/outbox";
import { Undelivered } from "./Undelivered";

let sent: string[];
let status: number;
let tokens: string[]; // what the session says each time; the server takes the last one alone

function session(): Response {
  const csrf = tokens.length > 1 ? tokens.shift() : tokens[0];
  return Response.json({ name: "ada", role: "annotator", permissions: ["queues", "vote"], csrf, open_access: false, first_start: false });
}

function vote(ticket: string, person = "ada"): KeptVote {
  const body = { person, ticket, seal: "s", choice: "first", strength: 2, rationale: "B invents a source", seconds: 3, principles: [] } as const;
  return { queue: "first-round", at: 0, body: { ...body, principles: [] } };
}

beforeEach(() => {
  sent = [];
  status = 200;
  tokens = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    if (new URL(request.url).pathname === "/api/session") return session();
    const { ticket } = (await request.json()) as { ticket: string };
    sent.push(ticket);
    const receipt = { ticket, said: "first", repeated: false, opinions: [], votes: [] };
    const token = tokens.at(-1) ?? null;
    if (token !== null && request.headers.get("X-CSRF-Token") !== token) return Response.json({ code: "forbidden", detail: "of another session" }, { status: 403 });
    const told = status === 200 ? { receipt, next: null } : { code: "conflict", detail: "the time for this item ran out" };
    return new Response(JSON.stringify(told), { status, headers: { "Content-Type": "application/json" } });
  });
});
afterEach(() => {
  cleanNotifications();
  vi.unstubAllGlobals();
});

const page = (
  <>
    <Notifications />
    <Undelivered person="ada" />
  </>
);

it("sends votes that waited from a page of any area, and says so", async () => {
  keepVote(vote("1-1-vote"));
  keepVote(vote("2-1-vote"));
  keepVote(vote("3-1-vote", "ben"));
  renderAt(page, "/curate/quality");
  await screen.findByText("2 votes that waited in this browser are stored now.");
  expect(sent).toEqual(["1-1-vote", "2-1-vote"]);
  expect([keptVotes("ada").length, keptVotes("ben").length]).toEqual([0, 1]);
});

it("leaves them to a session, which sends its own", async () => {
  keepVote(vote("1-1-vote"));
  for (const address of ["/annotate/queue/first-round", "/annotate/queue/first-round/adjudicate"]) renderAt(page, address).unmount();
  renderAt(page, "/annotate/queue/first-round/report");
  await screen.findByText("1 vote that waited in this browser is stored now.");
  expect(sent).toEqual(["1-1-vote"]);
});

it("shows one that the server will not take, with what was written for it", async () => {
  status = 409;
  keepVote(vote("1-1-vote"));
  renderAt(page, "/runs");
  await waitFor(() => expect(screen.getByRole("alert")).toHaveTextContent("the time for this item ran out"));
  expect(screen.getByRole("alert")).toHaveTextContent("B invents a source");
  expect(screen.queryByText(/stored now/)).not.toBeInTheDocument();
});

it("sends them with the new token when somebody has signed in again in another tab", async () => {
  tokens = ["first", "second"];
  keepVote(vote("1-1-vote"));
  renderAt(<SessionGate>{page}</SessionGate>, "/data");
  await screen.findByText("1 vote that waited in this browser is stored now.");
  expect(sent.length).toBeGreaterThan(1);
});
