import { describe, expect, it } from "vitest";

import { spanIn } from "./evidence";

const SOURCE =
  "Sort it **first**, then _compare_ neighbours.\n\n1. It costs `O(n log n)`.\n2. See [the manual](https://example.org/sort) for why.\n\n```python\nsorted(items)\n```\nDas Maß: naïve 𝒳𝒴 here.";

describe("evidence", () => {
  it.each([
    ["Sort it", "Sort it"],
    ["  neighbours. ", "neighbours."],
    ["Sort it first, then compare", "Sort it **first**, then _compare"],
    ["compare neighbours.\n\nIt costs O(n log n).", "compare_ neighbours.\n\n1. It costs `O(n log n)"],
    ["See the manual for why", "See [the manual](https://example.org/sort) for why"],
    ["why.\n\nsorted(items)", "why.\n\n```python\nsorted(items)"],
    ["naïve 𝒳𝒴", "naïve 𝒳𝒴"],
    ["(n log n)", "(n log n)"],
  ])("of %j is a span of the source", (selected, text) => {
    expect(spanIn(selected, SOURCE)).toEqual({ text, whole: true });
    expect(SOURCE).toContain(text);
  });

  it("is the longest part where the page shows something else than the source", () => {
    const found = spanIn("then compare neighbours. [a picture of sorting]", SOURCE);
    expect(found).toEqual({ text: "then _compare_ neighbours", whole: false });
  });

  it("is taken at whole words rather than within some", () => {
    expect(spanIn("to us", "onto **us**all, to **us** too")).toEqual({ text: "to **us", whole: true });
  });

  it("is nothing without words, or with words that are not there", () => {
    for (const selected of ["", "  ", "***", "bubble sort is best", "Sort them"]) expect(spanIn(selected, SOURCE)).toBeNull();
  });
});
