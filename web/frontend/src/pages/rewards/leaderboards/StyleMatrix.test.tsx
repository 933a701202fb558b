import { screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../../../testing/render";
import type { Result } from "./results";
import { StyleMatrix } from "./StyleMatrix";

const STYLES = ["concise", "detailed", "markdown"];

/** Two domains whose cells are 0.2 and 0.6 where the chosen response is plainer, 0.9 elsewhere. */
function result(): Result {
  const aggregates = ["chat", "code"].flatMap((domain, at) => [
    { name: domain, value: 0.5, low: 0.4, high: 0.6, method: "bootstrap" },
    ...STYLES.flatMap((row, i) =>
      STYLES.map((column, j) => ({ name: `${domain}/${row}>${column}`, value: i < j ? [0.2, 0.6][at]! : 0.9, low: null, high: null, method: null })),
    ),
  ]);
  const entry = { run_id: "run-1", model: "helpful", version: null, at: "2026-01-01T00:00:00Z", ties: "official", data: null, headline: null, items: 2, scored: 2, failed: 0, truncated: 0, missing: null, curves: [], read_as: "", coverage: 1, ranked: true, warnings: [], failures_wrong: null };
  return { entry, bench: "rm-bench", aggregates, counts: {}, failures: {}, protocol: {}, truncated_share: null, curves: [], subsets: [] };
}

describe("StyleMatrix", () => {
  it("shows the recorded cells over all domains with their intervals", () => {
    const plain = result();
    const cells = STYLES.flatMap((row) =>
      STYLES.map((column) => ({ name: `overall/${row}>${column}`, value: 0.75, low: 0.71, high: 0.79, method: "bootstrap" })),
    );
    renderAt(<StyleMatrix results={[{ ...plain, aggregates: [...plain.aggregates, ...cells] }]} names={["helpful"]} />);
    const row = screen.getByRole("rowheader", { name: "concise" }).closest("tr")!;
    expect(within(row).getAllByRole("cell")[1]).toHaveTextContent(/0\.75.*0\.71.*0\.79.*hard/);
    expect(screen.queryByText(/earlier version/)).toBeNull();
  });

  it("takes the mean of the domains that are there of an earlier result, and says that it has no interval", async () => {
    const { container } = renderAt(<StyleMatrix results={[result()]} names={["helpful"]} />);
    const row = screen.getByRole("rowheader", { name: "concise" }).closest("tr")!;
    expect(within(row).getAllByRole("cell").map((cell) => cell.textContent)).toEqual(["0.90normal", "0.40hard", "0.40hard"]);
    expect(screen.getByText(/earlier version has no intervals/)).toBeInTheDocument();
    expect((await axe(container)).violations).toEqual([]);
  });
});
