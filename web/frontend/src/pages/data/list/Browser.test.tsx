import { fireEvent, screen, waitFor } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import { CurrentSession, type Session } from "../../../api/session";
import { renderAt } from "../../../testing/render";
import { Browser } from "./Browser";
import type { Row } from "./useComparisons";

const SESSION: Session = { name: "ada", role: "curator", permissions: ["records", "curate"], csrf: "", open_access: true, first_start: false };

const TOTAL = 1_000_000;

afterEach(() => vi.unstubAllGlobals());

/** A store in which nothing matches but in `dense` quarters: each page searches one, and comes when it is let go. */
class Store {
  asked: string[] = [];
  private waiting: (() => void)[] = [];

  constructor(dense: number[] = []) {
    vi.stubGlobal("fetch", async (request: Request) => {
      const url = new URL(request.url);
      this.asked.push(url.pathname);
      if (url.pathname.endsWith("/facets")) {
        return Response.json({ comparisons: TOTAL, sources: [], categories: [], languages: [], models: [] });
      }
      await new Promise<void>((resolve) => this.waiting.push(resolve));
      const examined = Number(url.searchParams.get("after")?.split(".")[0] ?? 0) + TOTAL / 4;
      const quarter = (4 * examined) / TOTAL;
      const rows = dense.includes(quarter) ? Array.from({ length: 80 }, (_, place) => row(`${quarter}-${place}`)) : [];
      return Response.json({ rows, after: examined < TOTAL ? `${examined}.1024` : null, examined, total: TOTAL });
    });
  }

  /** The page that is asked for, soon, comes. */
  async answer() {
    await waitFor(() => expect(this.waiting.length).toBe(1));
    this.waiting.pop()!();
  }

  get pages() {
    return this.asked.filter((path) => path === "/api/comparisons").length;
  }
}

function row(id: string): Row {
  const text = { text: id, length: id.length, cut: false, found: false };
  return {
    ...{ comparison_id: id, prompt: text, a: text, b: text, pool: "gold", label: null, rule: null, conflict: false },
    ...{ sources: [], categories: [], languages: [], opinions: 0, turns: 1 },
  };
}

describe("Browser", () => {
  it("says how far a search has come, stops it and goes on where it was", async () => {
    const store = new Store();
    const { container } = renderAt(<CurrentSession value={SESSION}><Browser /></CurrentSession>, "/data?text=rare");
    await store.answer();
    await screen.findByText("0 found in 25 % of 1,000,000, searching on", undefined);
    fireEvent.click(screen.getByRole("button", { name: "Stop" }));
    await store.answer();
    await screen.findByText("0 found in 50 % of 1,000,000, stopped", undefined);
    expect((await axe(container)).violations).toEqual([]);
    expect(store.pages).toBe(2);
    fireEvent.click(screen.getByRole("button", { name: "Search on" }));
    await store.answer();
    await store.answer();
    await screen.findByText("No such comparison", undefined);
    expect(store.pages).toBe(4);
  });

  it("goes on with a search that was stopped while many were about to be found", async () => {
    const store = new Store([2]);
    renderAt(<CurrentSession value={SESSION}><Browser /></CurrentSession>, "/data?text=rare");
    await store.answer();
    fireEvent.click(await screen.findByRole("button", { name: "Stop" }));
    await store.answer();
    await screen.findByText("80 found in 50 % of 1,000,000, stopped", undefined);
    fireEvent.click(screen.getByRole("button", { name: "Search on" }));
    await waitFor(() => expect(screen.queryByText(/stopped/)).not.toBeInTheDocument());
  });

  it("keeps the focus where a search is stopped, page after page", async () => {
    const store = new Store();
    renderAt(<CurrentSession value={SESSION}><Browser /></CurrentSession>, "/data?text=rare");
    await store.answer();
    const stop = await screen.findByRole("button", { name: "Stop" });
    stop.focus();
    await store.answer();
    await screen.findByText(/in 50 %/, undefined);
    await waitFor(() => expect(store.pages).toBe(3));
    expect(stop).toHaveFocus();
  });

  it("asks for what can be filtered by after the first rows", async () => {
    const store = new Store();
    renderAt(<CurrentSession value={SESSION}><Browser /></CurrentSession>, "/data?text=rare");
    await store.answer();
    await waitFor(() => expect(store.asked).toContain("/api/comparisons/facets"));
    expect(store.asked[0]).toBe("/api/comparisons");
  });
});
