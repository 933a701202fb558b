import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import { CurrentSession, type Session } from "../../api/session";
import { renderAt } from "../../testing/render";
import { commonStart } from "./CompareRuns";
import { RunList } from "./RunList";

const RUN = { kind: "train", status: "done", started: 1, seconds: 2, step: 3, figure: null, error: null, warnings: [], note: "", tags: [], archived: false, removed: null, values: {} };
const RUNS = [
  { ...RUN, id: "run-a", name: "helpful", tags: ["best"], note: "<b>held</b>", values: { "config.lr": 1e-5 } },
  { ...RUN, id: "run-b", name: null, archived: true, removed: "2026-01-01", status: "failed", error: "ValueError: <full>", values: { "config.lr": null } },
];

const SESSION = { name: "ada", role: "curator", permissions: ["records", "curate"] } as unknown as Session;
const listAt = (address = "/") => renderAt(<CurrentSession value={SESSION}><RunList /></CurrentSession>, address);

function serve() {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (request: Request) => {
    const url = new URL(request.url);
    asked.push(url.pathname + url.search);
    const replies: Record<string, unknown> = {
      "/api/runs": { runs: RUNS, total: 2, kinds: [{ kind: "train", runs: 2 }], held: null },
      "/api/runs/alerts": { rules: [], alerts: [{ rule: 1, run: "run-b", seen_by: null }], more: 0 },
    };
    return new Response(JSON.stringify(replies[url.pathname] ?? {}), { headers: { "Content-Type": "application/json" } });
  });
  return asked;
}

afterEach(() => {
  vi.unstubAllGlobals();
  window.localStorage.clear();
});

describe("list of runs", () => {
  it("asks the server for what the address says, and shows notes, tags, columns and alerts as text", async () => {
    const asked = serve();
    listAt("/?text=tag:best&sort=config.lr&direction=up&columns=config.lr");
    await screen.findByText("alert");
    const [, first, second] = screen.getAllByRole("row");
    expect(new URLSearchParams(asked.find((one) => one.startsWith("/api/runs?"))!.split("?")[1]).toString()).toBe("text=tag%3Abest&sort=config.lr&direction=up&column=config.lr&limit=50&offset=0");
    expect(first).toHaveTextContent("helpfulbestrun-a<b>held</b>");
    expect(first).toHaveTextContent("1.00e-5");
    expect(second).toHaveTextContent("trainalertarchivedfiles removedrun-b");
    expect(within(second!).getByText("ValueError: <full>")).toBeInTheDocument();
    expect(screen.getByRole("columnheader", { name: /lr/ })).toHaveAttribute("aria-sort", "ascending");
    expect(screen.getByRole("link", { name: "CSV" })).toHaveAttribute("href", "/api/runs/table.csv?text=tag%3Abest&sort=config.lr&direction=up&column=config.lr");
  });

  it("sorts by the head that is pressed, and remembers chosen columns", async () => {
    window.localStorage.setItem("assay.runs.columns", '["metrics.accuracy", "x\\"; DROP"]');
    const asked = serve();
    listAt();
    await userEvent.click(await screen.findByRole("button", { name: "accuracy" }));
    await vi.waitFor(() => expect(asked.some((one) => one.includes("sort=metrics.accuracy&direction=down&column=metrics.accuracy&limit"))).toBe(true));
    await userEvent.click(screen.getByRole("checkbox", { name: "Choose all of this page" }));
    expect(screen.getByRole("button", { name: "Compare 2 runs" })).toBeEnabled();
  });
});

it("names what runs of one configuration share", () => {
  expect([commonStart(["helpful-s0", "helpful-s1"]), commonStart(["a", "b"]), commonStart(["policy seed 1", "policy seed 2"])]).toEqual(["helpful", "a", "policy"]);
});
