import { screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import type { Schemas } from "../../api/client";
import { renderAt } from "../../testing/render";
import { Estimate } from "./Estimate";

const FREE: Schemas["EstimateReply"] = {
  command: "assay data dedup",
  comparisons: 2729,
  steps: null,
  judges: [],
  calls: 0,
  tokens: 0,
  cost: 0,
  people: 0,
  known: true,
  spent: 0,
  budget: null,
  not_counted: [],
  token: "t",
};

describe("Estimate", () => {
  it("says of a stage that asks nobody that it costs time alone", () => {
    renderAt(<Estimate estimate={FREE} />);
    expect(screen.getByText(/it costs time alone/)).toBeInTheDocument();
    expect(screen.queryByRole("table")).not.toBeInTheDocument();
  });
  it("warns where the budget will not do, and claims no price that nobody knows", async () => {
    const judge = { judge: "m@1", kind: "openai", questions: 8, calls: 16, tokens: 1200, cost: 2.5 };
    const found = { ...FREE, judges: [judge], calls: 16, tokens: 1200, cost: 2.5, spent: 3, budget: 5, known: false };
    const { container, unmount } = renderAt(<Estimate estimate={found} />);
    expect(screen.getByText(/The budget may stop it/)).toBeInTheDocument();
    expect((await axe(container)).violations).toEqual([]);
    unmount();
    renderAt(<Estimate estimate={{ ...found, cost: null, judges: [{ ...judge, cost: null }] }} />);
    expect(screen.getAllByText("unknown, no prices")).toHaveLength(2);
    expect(screen.queryByText(/The budget may stop it/)).not.toBeInTheDocument();
  });
});
