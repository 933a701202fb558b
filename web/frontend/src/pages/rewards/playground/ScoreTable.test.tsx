import { screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../../../testing/render";
import type { Answer, Reply } from "./draft";
import { ScoreTable } from "./ScoreTable";

type Score = Reply["columns"][number]["scores"][number];

const NOTHING = { rank: null, reward: null, probability: null, uncertainty: null, tokens: null, truncated: null, calibration: null, parts: [], coverage: null, code: null, failure: null };
const scored = (given: Partial<Score>): Score => ({ ...NOTHING, rank: 1, reward: 1.25, tokens: 12, truncated: false, ...given });

function answered(scores: Score[]): Answer {
  return {
    question: { prompt: [{ role: "user", content: "Name a metal." }], responses: scores.map((_, n) => `answer ${n}`), models: [], principles: [] },
    reply: {
      columns: [
        { address: "http://rm", model: "helpful", version: "4c1f0a9be2d4", principle: null, refused: null, scores, best_beats_second: 0.75, basis: "calibration" },
        { address: "http://rm", model: "principled", version: "9ad44ef3f8cb", principle: null, refused: "it judges by a principle: choose one", scores: [], best_beats_second: null, basis: null },
      ],
      standings: scores.map(({ rank }) => ({ best: rank === 1 ? 1 : 0, worst: rank === 2 ? 1 : 0, columns: rank === null ? 0 : 1 })),
    },
    at: "2026-01-01T00:00:00Z",
  };
}

describe("ScoreTable", () => {
  it("says a failure in words and never as a number", async () => {
    const failed: Score = { ...NOTHING, code: "too_long", failure: "the response does not fit in 512 tokens" };
    const { container } = renderAt(<ScoreTable answer={answered([scored({ calibration: "k-1", probability: 0.7, uncertainty: 0.125 }), failed])} />);
    const rows = screen.getAllByRole("row");
    expect(rows[1]).toHaveTextContent(/1\.2500 ± 0\.125 .*rank 1P 0\.700/);
    const cell = within(rows[2]!).getByText("failed: too_long").closest("td")!;
    expect(cell).toHaveTextContent("the response does not fit in 512 tokens");
    expect(cell.textContent).not.toMatch(/0\.0|NaN|rank/);
    expect(rows[2]).toHaveTextContent("not ranked");
    expect((await axe(container)).violations).toEqual([]);
  });

  it("tells a probability without a calibration from a calibrated one", () => {
    renderAt(<ScoreTable answer={answered([scored({ probability: 0.571 }), scored({ rank: 2, probability: null })])} />);
    expect(screen.getByText("P 0.571", { exact: false })).toHaveTextContent("P 0.571, not calibrated");
    expect(screen.getByText("P not calibrated")).toBeInTheDocument();
  });

  it("says which items of a rubric have no grade, and which one decided", () => {
    const part = { reward: null, weight: 1, skipped: null, failed: null, gate: null };
    const parts = [
      { ...part, name: "kind", value: null, failed: "too_long: does not fit" },
      { ...part, name: "rude", value: 1, gate: "veto" },
    ];
    renderAt(<ScoreTable answer={answered([scored({ parts, coverage: 0.5 })])} />);
    expect(screen.getByText("50 % of the items have a grade")).toBeInTheDocument();
    expect(screen.getByText("kind failed: too_long: does not fit; rude 1.000 (decided: veto)")).toBeInTheDocument();
  });

  it("says why a model was not asked", () => {
    renderAt(<ScoreTable answer={answered([scored({})])} />);
    expect(screen.getByText("Not asked: it judges by a principle: choose one")).toBeInTheDocument();
    expect(screen.getByText("P(best beats second) 0.750, by its calibration")).toBeInTheDocument();
  });
});
