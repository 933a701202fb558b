import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";

import { CurrentSession, type Session } from "../../../api/session";
import { renderAt } from "../../../testing/render";
import { QueueRow } from "./QueueRow";

const SESSION = { name: "ada", role: "curator", permissions: ["queues", "vote", "records", "curate"] } as unknown as Session;
const BUSY = { timeout: 20_000 }; // a busy machine

function row(question: string) {
  const about = { closed: false, counts: null, guideline: "", mine: 0, overlap: 2, people: 0, project: "default", title: "q", description: "", paused: false, assigned: true };
  renderAt(
    <CurrentSession value={SESSION}>
      <QueueRow queue={{ ...about, name: "q", question, share: 0, voting: 0 }} />
    </CurrentSession>,
  );
}

describe("the menu of a queue", () => {
  it.each(["pair", "ranking", "my_types.py:Grades"])("decides by the votes on a %s", async (question) => {
    row(question);
    await userEvent.click(screen.getByRole("button", { name: "More for q" }));
    expect(await screen.findByText("Decide by the votes", undefined, BUSY)).toBeInTheDocument();
  }, 60_000);

  it.each(["rating", "steps", "spans"])("does not for %s, whose labels stand", async (question) => {
    row(question);
    await userEvent.click(screen.getByRole("button", { name: "More for q" }));
    await screen.findByText("Close", undefined, BUSY);
    expect(screen.queryByText("Decide by the votes")).toBeNull();
  }, 60_000);
});
