import { describe, expect, it } from "vitest";

import { cutAround } from "./overlap";

describe("cutAround", () => {
  it("finds words in common whatever their case and punctuation", () => {
    expect(cutAround("Well: How do power-companies, sense it?\nYes", "how do power companies sense it")).toEqual([
      "Well: ",
      "How do power-companies, sense it",
      "?\nYes",
    ]);
  });
  it("takes no part of a word", () => {
    expect(cutAround("aniseed seed", "seed")).toEqual(["aniseed ", "seed", ""]);
  });
  it("says where there is nothing", () => {
    expect(cutAround("something else", "how do power companies")).toBeNull();
  });
});
