import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import type { Schemas } from "../../../api/client";
import { renderAt } from "../../../testing/render";
import { Judgments } from "./Judgments";
import { Labels } from "./Labels";
import { Scores } from "./Scores";

const JUDGMENT: Schemas["JudgmentRecord"] = {
  judgment_id: "j-1",
  annotator_id: "a-1",
  annotator: "grace",
  kind: "human",
  answer: "both_bad",
  strength: 2,
  confidence: null,
  rationale: "Neither answers.",
  shown_order: "BA",
  seconds: 12.34,
  origin: "queue/q/1",
  vote: false,
  run_id: null,
  created_at: "2026-01-02T03:04:05Z",
  withdrawn_at: null,
  withdrawn_reason: null,
};
const SCORE: Schemas["ScoreRecord"] = {
  side: "A",
  model: "rm",
  model_version: "v",
  template_hash: "t",
  principle: "",
  reward: 1.5,
  probability: null,
  uncertainty: 0.25,
  tokens: null,
  truncated: true,
  error: null,
  run_id: null,
  created_at: "2026-01-02T03:04:05Z",
};

describe("Judgments", () => {
  it("tells a vote that was taken back from one that stands, and hides a judge's single votes", async () => {
    const back = { ...JUDGMENT, judgment_id: "j-2", withdrawn_at: "2026-01-03T00:00:00Z", withdrawn_reason: "wrong key" };
    const vote = { ...JUDGMENT, judgment_id: "j-3", annotator: "judge", kind: "llm", answer: "A", vote: true };
    const { container } = renderAt(<Judgments judgments={[JUDGMENT, back, vote]} sourceLabel={null} />);
    const [, first, second] = screen.getAllByRole("row");
    expect(first).toHaveTextContent(/both bad.*2 of 3.*B first.*12 s/);
    expect(within(first!).queryByText(/Taken back/)).toBeNull();
    expect(second).toHaveTextContent(/Taken back .*: wrong key/);
    expect(second).toHaveClass("withdrawn");
    expect(screen.getAllByRole("row")).toHaveLength(3);
    await userEvent.click(screen.getByRole("switch"));
    expect(screen.getAllByRole("row")).toHaveLength(4);
    expect((await axe(container)).violations).toEqual([]);
  });
});

describe("Labels", () => {
  const said = { annotator: "grace", kind: "human", rationale: null, origin: "queue/q/1", run_id: null, created_at: "2026-01-02T03:04:05Z", withdrawn_at: null, withdrawn_reason: null };
  const rating = { ...said, step: null, label: null, words: null, side: "A" as const, judgment_id: "v-1", aspect: "helpfulness", value: 4, low: 1, high: 5 };
  const mark = { ...said, aspect: null, side: "B" as const, judgment_id: "t-1", step: 1, label: null, value: -1, low: -1, high: 1, words: "4 + 1 = 6" };

  it("shows ratings, steps, spans and rankings with who gave them", async () => {
    const { container } = renderAt(
      <Labels
        labels={[rating, { ...rating, judgment_id: "v-2", aspect: "acceptable", value: 0 }, { ...rating, judgment_id: "v-3", value: null }, mark, { ...mark, judgment_id: "t-2", step: null, label: "slip", value: null, origin: "adjudication:open/q/1" }]}
        rankings={[{ annotator: "ada", kind: "human", origin: "queue/r/1", responses: 3, place_a: 2, place_b: 1, created_at: "2026-01-02T03:04:05Z" }]}
      />,
    );
    const rows = screen.getAllByRole("row").map((row) => row.textContent);
    expect(rows[1]).toMatch(/^gracehumanAhelpfulness4 \(1 to 5\)/);
    expect(rows[2]).toMatch(/acceptable \(yes or no\)no/);
    expect(rows[3]).toMatch(/cannot say/);
    expect(rows.find((row) => row?.includes("wrong"))).toMatch(/B2wrong4 \+ 1 = 6/);
    expect(rows.find((row) => row?.includes("slip"))).toMatch(/^gracehuman, adjudicator/);
    expect(rows.at(-1)).toMatch(/^adahuman213/);
    expect((await axe(container)).violations).toEqual([]);
  });

  it("is not there where nobody gave any", () => {
    renderAt(<Labels labels={[]} rankings={[]} />);
    expect(screen.queryByRole("region")).toBeNull();
  });
});

describe("Scores", () => {
  it("shows a failure as a failure and no difference with it", () => {
    const failed = { ...SCORE, side: "B" as const, reward: null, error: "timeout: after 30 s" };
    const other = { ...SCORE, model: "other" };
    renderAt(<Scores scores={[SCORE, failed, other, { ...other, side: "B" as const, reward: -0.5 }]} />);
    const [, broken, whole] = screen.getAllByRole("row");
    expect(broken).toHaveTextContent("failed: timeout: after 30 s");
    expect(broken).toHaveTextContent("1.500 ± 0.250");
    expect(broken).toHaveTextContent("cut to the model's length");
    expect(broken!.lastChild).toHaveTextContent(/^–$/);
    expect(whole!.lastChild).toHaveTextContent("+2.000");
  });
});
