import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import type { Schemas } from "../../api/client";
import { renderAt } from "../../testing/render";
import { JobForm } from "./JobForm";
import { asShown } from "./JobLog";

const FIELD: Schemas["FormField"] = {
  ...{ name: "data", type: "text", help: "A training set or a file.", default: null, required: true, choices: [], suggestions: ["first"] },
  ...{ least: null, most: null, placeholder: null, heading: null, prominent: true },
};
const FORM: Schemas["JobForm"] = {
  ...{ kind: "train", title: "Train", summary: "Trains.", choice: "method", choices: { bt: "Bradley-Terry.", sft: "Fine-tuning." } },
  fields: [FIELD, { ...FIELD, name: "warmup_ratio", type: "number", help: "Share of the steps.", default: 0.1, required: false, prominent: false }],
};
const ESTIMATE: Schemas["EstimateReply"] = {
  ...{ command: "assay train sft --data first --warmup-ratio 0.2", comparisons: 8, steps: 4, judges: [], calls: 0, tokens: 0, cost: 0 },
  ...{ people: 0, known: true, spent: 0, budget: null, not_counted: [], token: "t" },
};

describe("JobForm", () => {
  afterEach(() => vi.unstubAllGlobals());
  it("asks for what is needed, finds any other setting by what it does, and starts what the estimate said", async () => {
    const sent: { path: string; body: unknown }[] = [];
    vi.stubGlobal("fetch", async (request: Request) => {
      const { pathname } = new URL(request.url);
      if (pathname.endsWith("/form")) return Response.json(FORM);
      sent.push({ path: pathname, body: await request.json() });
      if (pathname === "/api/jobs/estimate") return Response.json(ESTIMATE);
      if (pathname === "/api/jobs/plan") return Response.json({ fits: false, needed: 2 ** 33, usable: 2 ** 32, seconds_a_step: 1, why: null });
      return Response.json({ id: "job-1" });
    });
    const started = vi.fn();
    const { container } = renderAt(<JobForm kind="train" first={{ method: "sft" }} onStarted={started} />);
    const ready = await screen.findByRole("button", { name: "What would it take?" });
    expect(ready).toBeDisabled();
    await userEvent.type(screen.getByLabelText(/^Data/, { selector: "input" }), "first");
    await userEvent.click(screen.getByLabelText("Other settings", { selector: "input" }));
    await userEvent.keyboard("share of");
    await userEvent.click(await screen.findByText("Share of the steps."));
    await userEvent.type(await screen.findByLabelText("Warmup ratio", { selector: "input" }), "0.2");
    expect((await axe(container)).violations).toEqual([]);
    await userEvent.click(ready);
    expect(await screen.findByText(ESTIMATE.command)).toBeInTheDocument();
    expect(await screen.findByRole("alert")).toHaveTextContent("it needs 8.0 of 4.0 GiB");
    await userEvent.click(screen.getByRole("button", { name: "Start" }));
    const settings = { method: "sft", data: "first", warmup_ratio: 0.2 };
    await waitFor(() => expect(started).toHaveBeenCalledWith({ id: "job-1" }));
    expect(sent.at(-1)).toEqual({ path: "/api/jobs", body: { kind: "train", settings, token: "t" } });
  });
});

describe("asShown", () => {
  it("shows a line that was written over in its last state", () => {
    expect(asShown("one\r\n10 %\r50 %\r\nlast\r")).toBe("one\n50 %\nlast");
  });
});
