import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeAll, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../testing/render";
import { aligned, labels, formatNumber, spread } from "./chartData";
import { LiveChart } from "./LiveChart";

// jsdom draws nothing: what is drawn is looked at in a real browser.
vi.mock("uplot", async (original) => {
  const { default: real } = await original<{ default: { join: unknown } }>();
  class Undrawn {
    static join = real.join;
    width = 0;
    setData(): void {}
    setScale(): void {}
    setSize(): void {}
    redraw(): void {}
    destroy(): void {}
  }
  return { default: Undrawn };
});

const SERIES = [
  { name: "training", x: [1, 2, 3], y: [0.7, null, 0.5] },
  { name: "held-out", x: [2, 4], y: [0.6, 0.55], low: [0.5, 0.5], high: [0.7, 0.6] },
];

describe("LiveChart", () => {
  beforeAll(() => vi.stubGlobal("devicePixelRatio", 1));

  it("says in words what it draws, and gives its numbers as a table", async () => {
    const { container } = renderAt(<LiveChart title="Loss" unit="nats" series={SERIES} />);
    const told = "Loss by step. training: from 0.7 at 1 to 0.5 at 3. held-out: from 0.6 at 2 to 0.55 at 4.";
    expect(screen.getByRole("img", { name: told })).toBeInTheDocument();
    expect((await axe(container)).violations).toEqual([]);
    await userEvent.click(screen.getByRole("button", { name: "Loss: table of numbers" }));
    const rows = within(screen.getByRole("group", { name: "Loss, numbers" })).getAllByRole("row");
    expect(rows.map((row) => row.textContent)).toEqual(["steptrainingheld-out", "4–0.55", "30.5–", "2–0.6", "10.7–"]);
    expect((await axe(container)).violations).toEqual([]);
  });

  it("tells what it compares with and what happened where", () => {
    renderAt(<LiveChart title="Reward" series={SERIES} share reference={{ name: "chance", value: 0.25 }} moments={[{ x: 3, text: "the watch speaks up" }, { x: 2, text: "swap", ordinary: true }]} />);
    expect(screen.getByText("Step 3: the watch speaks up.")).toBeInTheDocument();
    expect(screen.queryByText("Step 2: swap.")).not.toBeInTheDocument();
    expect(screen.getByText("25.0 %", { selector: "b" })).toBeInTheDocument();
  });
});

describe("chart data", () => {
  it("puts series over one axis and remembers where bands are", () => {
    const found = aligned(SERIES);
    expect(found.places).toEqual([
      { y: 1, low: null, high: null },
      { y: 2, low: 3, high: 4 },
    ]);
    expect(found.data[0]).toEqual([1, 2, 3, 4]);
    expect(found.data[2]).toEqual([undefined, 0.6, undefined, 0.55]);
  });

  it("writes numbers as they are read", () => {
    expect([formatNumber(null), formatNumber(NaN), formatNumber(1234567.5), formatNumber(0.000012), formatNumber(12345), formatNumber(0.98765), formatNumber(0.5, true)]).toEqual([
      "–", "–", "1.23e+6", "1.20e-5", "12,345", "0.9877", "50.0 %",
    ]);
    expect(labels([0, 0.25, 0.5])).toEqual(["0.00", "0.25", "0.50"]);
    expect(labels([-5, 0, 5])).toEqual(["\u22125", "0", "5"]);
    expect(labels([0.95, 1], true)).toEqual(["95 %", "100 %"]);
    expect(labels([5.5388, 5.539])).toEqual(["5.5388", "5.5390"]);
    expect(labels([0, 1e-6])).toEqual(["0", "1.0e-6"]);
    expect(labels([5.53901, 5.53902])).toEqual(["5.53901", "5.53902"]);
    expect(labels([1.00001e-3, 1.00002e-3])).toEqual(["1.000010e-3", "1.000020e-3"]);
    expect(labels([0, 200_000, 1_000_000])).toEqual(["0", "200K", "1M"]);
    expect(spread(5, 3)).toEqual([0, 2, 4]);
  });
});
