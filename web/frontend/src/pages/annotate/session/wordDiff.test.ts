import { describe, expect, it } from "vitest";

import { wordDiff, type Piece } from "./wordDiff";

const whole = (pieces: Piece[]) => pieces.map((piece) => piece.text).join("");
const own = (pieces: Piece[]) => pieces.filter((piece) => piece.own).map((piece) => piece.text);

describe("the word diff", () => {
  it("gives both texts back whole, and marks what only one of them has", () => {
    const texts = ["The order\n  stays, so use a dict.", "The order stays, so use an OrderedDict."] as const;
    const [first, second] = wordDiff(...texts)!;
    expect([whole(first), whole(second)]).toEqual(texts);
    expect(own(first).join("")).toContain("dict");
    expect(own(second).join("")).toContain("OrderedDict");
    expect(own(second).join("")).not.toContain("stays");
  });

  it("marks nothing in equal texts, and everything beside an empty one", () => {
    expect(own(wordDiff("same", "same")![0])).toEqual([]);
    expect(wordDiff("", "all of it")).toEqual([[], [{ text: "all of it", own: true }]]);
  });
});
