import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import type { Schemas } from "../../../api/client";
import { SessionGate } from "../../../app/SessionGate";
import { renderAt } from "../../../testing/render";
import { MakeTrainingSet } from "./MakeTrainingSet";
import { nameFor } from "./sets";

const settings = { name: "first-train", pool: ["gold"], source: [], holdout: 0.1 };
const begun: Schemas["JobRecord"] = {
  ...{ id: "job-20260101-000000-abcdef", kind: "snapshot", title: "Training set", area: "data", settings, command: "assay data snapshot first-train" },
  ...{ by: "ada", started: 0, ended: null, status: "running", why: null, warnings: [], waits_for: [], resumes: null, resumed_by: null, can_resume: false },
  ...{ run_id: null, progress: [], spent: null, expected: null },
};
const checked: Schemas["CheckedSet"] = {
  made: {
    ...{ id: "s-1", name: "first-train", content_hash: "c0ffee", items: 8, pairs: 7, ties: 1, pools: { gold: 8 } },
    ...{ held_out: { name: "first-train-holdout", items: 2 }, command: "assay train bt --data first-train", downloadable: true },
  },
  contamination: ["bench: not checked"],
  stops_training: "first-train is not checked against benchmark 'bench'; run: assay data decontaminate",
};

/** A server whose job has ended like this when it is looked at. Gives what it was asked to make. */
function server(ended: Partial<Schemas["JobRecord"]>): unknown[] {
  const asked: unknown[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const { pathname } = new URL(request.url);
    if (request.method === "POST") {
      asked.push(await request.json());
      return Response.json(begun);
    }
    if (pathname === "/api/session") return Response.json({ name: "ada", role: "curator", permissions: ["queues", "vote", "records", "curate"], open_access: false, csrf: null });
    if (pathname === `/api/jobs/${begun.id}`) return Response.json({ ...begun, ...ended });
    expect(pathname).toBe("/api/training-sets/first-train");
    return Response.json(checked);
  });
  return asked;
}

async function press(): Promise<HTMLElement> {
  const { container } = renderAt(
    <SessionGate>
      <MakeTrainingSet name="first-train" pools={["gold"]} />
    </SessionGate>,
  );
  await userEvent.click(await screen.findByRole("button", { name: "Make a training set" }));
  return container;
}

describe("MakeTrainingSet", () => {
  afterEach(() => vi.unstubAllGlobals());
  it("shows what was made, what training would say of it, the next command and the download", async () => {
    const asked = server({ status: "done" });
    const container = await press();
    expect(await screen.findByText("7 pairs")).toBeInTheDocument();
    expect(asked).toEqual([{ kind: "snapshot", settings }]);
    expect(screen.getByText("2 held out")).toBeInTheDocument();
    expect(screen.getByText("c0ffee")).toBeInTheDocument();
    expect(screen.getByText(/not checked against benchmark 'bench'/)).toBeInTheDocument();
    expect(screen.getByText("assay train bt --data first-train")).toBeInTheDocument();
    expect(screen.getByRole("link", { name: /Download/ })).toHaveAttribute("href", "/api/training-sets/first-train/pairs.jsonl");
    expect((await axe(container)).violations).toEqual([]);
  });
  it("says what the command said where nothing was made, and lets go on", async () => {
    server({ status: "failed", why: "snapshot 'first-train' exists with other content" });
    await press();
    expect(await screen.findByRole("alert")).toHaveTextContent("snapshot 'first-train' exists with other content");
    expect(screen.getByRole("button", { name: "Make a training set" })).toBeEnabled();
  });
  it("proposes a name that a snapshot may have", () => {
    expect(["first", "Runde 1: Ärzte", "--", "?"].map(nameFor)).toEqual(["first-train", "Runde-1-rzte-train", "train", "train"]);
  });
});
