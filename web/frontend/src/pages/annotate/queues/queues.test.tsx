import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { Schemas } from "../../../api/client";
import { renderAt } from "../../../testing/render";
import { ItemTable } from "./ItemsPage";
import { GuidelineEditor } from "./settings/GuidelineEditor";

afterEach(() => vi.unstubAllGlobals());

function row(item: number): Schemas["ItemRow"] {
  return { item, asks_about: `c-${item}`, excerpt: `Question ${item}?`, states: ["open"], answers: {}, voters: [], people: [], before: [], notes: 0 };
}

describe("the items of a queue", () => {
  it("are chosen with the keyboard alone", async () => {
    const choose = vi.fn();
    renderAt(<ItemTable queue="q" rows={[1, 2, 3].map(row)} chosen={new Set([3])} choose={choose} />);
    const rows = screen.getAllByRole("row").slice(1);
    rows[0]!.focus();
    await userEvent.keyboard("{ArrowDown}");
    expect(rows[1]).toHaveFocus();
    await userEvent.keyboard(" ");
    expect(choose).toHaveBeenLastCalledWith(new Set([3, 2]));
    await userEvent.keyboard("{Shift>}k{/Shift}");
    expect(rows[0]).toHaveFocus();
    expect(choose).toHaveBeenLastCalledWith(new Set([3, 2, 1]));
    await userEvent.keyboard("a");
    expect(choose).toHaveBeenLastCalledWith(new Set([3, 1, 2]));
  });
});

describe("a guideline that two edit at once", () => {
  it("shows the second the other's text, and stores what they choose", async () => {
    const sent: unknown[] = [];
    const theirs = { version: 2, text: "ben's text", person: "ben", at: 1 };
    vi.stubGlobal("fetch", async (request: Request) => {
      if (request.method === "GET") return Response.json([theirs]);
      const edit = (await request.json()) as { text: string; version: number };
      sent.push(edit);
      return edit.version === 2 ? Response.json({ ...edit, version: 3, person: "cora", at: 2 }) : Response.json({ detail: "changed" }, { status: 409 });
    });
    renderAt(<GuidelineEditor queue="shared" current={{ version: 1, text: "as made", person: null, at: 0 }} />);
    const box = screen.getByLabelText("Text of the guideline, Markdown");
    await userEvent.clear(box);
    await userEvent.type(box, "cora's text");
    await userEvent.click(screen.getByRole("button", { name: "Store the guideline" }));
    const dialog = await screen.findByRole("dialog");
    expect(within(dialog).getByDisplayValue("ben's text")).toBeInTheDocument();
    expect(within(dialog).getByDisplayValue("cora's text")).toBeInTheDocument();
    await userEvent.click(within(dialog).getByRole("button", { name: "Store mine as the next version" }));
    expect(sent).toEqual([
      { text: "cora's text", version: 1 },
      { text: "cora's text", version: 2 },
    ]);
  });
});
