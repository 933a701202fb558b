import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { Schemas } from "../../api/client";
import { renderAt } from "../../testing/render";
import { RunSamples } from "./RunSamples";

const LINE = 20; // pixels; a closed text shows four

function sample(response: string, prompt: Schemas["SampleReply"]["prompt"]): Schemas["SampleReply"] {
  const figures = { reward: 1, advantage: 0.5, parts: {}, failures: [], tokens: 3, truncated: false, trained: true, episode: null };
  return { ...figures, prompt, response, uid: response } as unknown as Schemas["SampleReply"];
}

afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

describe("rollouts of a run", () => {
  it("offers all of it only where lines or turns are hidden", async () => {
    const ask = { role: "user", content: "Sum?" } as const;
    const samples = [
      sample("x".repeat(300), [ask]), // long, but one line as it is laid out
      sample("1\n2\n3\n4\n5", [ask]),
      sample("4", [{ role: "system", content: "Be short." }, ask]),
    ];
    const reply = { step: 1, first: 1, last: 1, total: 3, samples };
    vi.stubGlobal("fetch", async () => new Response(JSON.stringify(reply), { headers: { "Content-Type": "application/json" } }));
    const tall = (element: Element) => LINE * (element.textContent ?? "").split("\n").length;
    vi.spyOn(Element.prototype, "scrollHeight", "get").mockImplementation(function (this: Element) {
      return tall(this);
    });
    vi.spyOn(Element.prototype, "clientHeight", "get").mockImplementation(function (this: Element) {
      return Math.min(4 * LINE, tall(this));
    });
    renderAt(<RunSamples id="r" running={false} />);
    const rows = (await screen.findAllByRole("row")).slice(1);
    const offered = () => rows.map((row) => within(row).queryByRole("button", { name: "All of it" }) !== null);
    await waitFor(() => expect(offered()).toEqual([false, true, true]));
    await userEvent.click(within(rows[1]!).getByRole("button"));
    expect(within(rows[1]!).getByRole("button", { name: "Less" })).toBeVisible();
    await userEvent.click(within(rows[1]!).getByRole("button"));
    await waitFor(() => expect(offered()).toEqual([false, true, true]));
  });

  it("shows an episode turn by turn, with its figures above", async () => {
    const facts = { tokens: 7, seconds: 0.25, calls: 1, invalid: 1, errors: 1, oversized: false };
    const messages = [{ role: "assistant", content: "<b>4?</b>" }, { role: "tool", content: [{ type: "tool_result", content: "error: no JSON" }] }];
    const turn = { ...facts, messages, rewards: { field: 0.25, form: "not_finite: nan" } };
    const episode = { environment: "Form", ended: "turns", opening: [], turns: [turn], rewards: { win: 1 } };
    const one = { ...sample("4?", [{ role: "user", content: "Sum?" }]), episode, verified: null };
    const figures = { title: "1 episode", head: ["figure", "value"], rows: [["solved", "1"]] };
    const reply = { step: 1, first: 1, last: 1, total: 1, samples: [one], episodes: figures };
    vi.stubGlobal("fetch", async () => new Response(JSON.stringify(reply), { headers: { "Content-Type": "application/json" } }));
    renderAt(<RunSamples id="r" running={false} />);
    await userEvent.click(await screen.findByRole("button", { name: "Turn by turn" }));
    expect(screen.getByText("<b>4?</b>")).toBeVisible();
    expect(screen.getByText("Turn 1").parentElement).toHaveTextContent("Turn 17 tokens0.3 s1 call1 could not be runfield: 0.25form: not_finite: nan");
    expect(screen.getByText("The episode was ended by the limit on turns").parentElement).toHaveTextContent("win: 1");
    expect(screen.getByText("1 call could not be run")).toBeInTheDocument();
    expect(screen.getByRole("region", { name: "1 episode", hidden: true })).toHaveTextContent("solved1");
  });
});
