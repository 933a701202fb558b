import { screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../../testing/render";
import { JobProgress, JobSpent } from "./JobProgress";

const COUNT = {
  what: "asking fake@1",
  done: 1200,
  total: 2700,
  unit: "questions",
  rate: 5,
  seconds_left: 300,
  began: 1000,
  at: 1240,
  ended: false,
};

describe("JobProgress", () => {
  it("says done of total, the rate and the time left, and claims neither once nothing is counted any more", async () => {
    const { container, unmount } = renderAt(<JobProgress counts={[COUNT]} going now={1241} />);
    expect(screen.getByText("1,200")).toBeInTheDocument();
    expect(screen.getByText("5.0 a second, about 5 min 0 s left")).toBeInTheDocument();
    expect(screen.getByRole("progressbar")).toHaveAttribute("aria-valuenow", String((100 * 1200) / 2700));
    expect((await axe(container)).violations).toEqual([]);
    unmount();
    const silent = renderAt(<JobProgress counts={[COUNT]} going now={1340} />);
    expect(screen.getByText("nothing new for 1 min 40 s")).toBeInTheDocument();
    silent.unmount();
    renderAt(<JobProgress counts={[COUNT]} going={false} now={1341} />);
    expect(screen.queryByText(/left/)).not.toBeInTheDocument();
  });
  it("tells the pace of the innermost count alone", () => {
    const loop = { ...COUNT, what: "loop first", done: 3, total: 13, unit: "steps", rate: 0.1, seconds_left: 100 };
    renderAt(<JobProgress counts={[loop, COUNT]} going now={1241} />);
    expect(screen.getAllByRole("progressbar")).toHaveLength(2);
    expect(screen.getAllByText(/left/)).toHaveLength(1);
    expect(screen.getByText(/about 5 min/)).toBeInTheDocument();
  });
  it("does not invent a total", () => {
    renderAt(<JobProgress counts={[{ ...COUNT, what: "iteration 1: training the reward model", done: 0, total: null }]} going now={1241} />);
    expect(screen.queryByRole("progressbar")).not.toBeInTheDocument();
  });
});

describe("JobSpent", () => {
  it("says what was spent of what was expected, and no price that nobody knows", () => {
    const expected = { calls: 20, cost: 0.5, budget: 3, spent: 0 };
    const { unmount } = renderAt(<JobSpent spent={{ calls: 8, tokens: 900, cost: 0.2 }} expected={expected} />);
    expect(screen.getByText("0.20")).toBeInTheDocument();
    expect(screen.getByText(/spent of at most 0.50 estimated, budget 3.00/)).toBeInTheDocument();
    unmount();
    renderAt(<JobSpent spent={{ calls: 8, tokens: 900, cost: null }} expected={expected} />);
    expect(screen.getByText(/what it cost is not known/)).toBeInTheDocument();
  });
});
