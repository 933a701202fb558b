import { describe, expect, it } from "vitest";

import { filtersSet, isId, keyOf, queryOf } from "./filters";

describe("the address of the list", () => {
  const address = new URLSearchParams("source=b&source=a&pool=gold&text=x+y&order=newest&other=1&language=");

  it("is what the API is asked", () => {
    expect(queryOf(address)).toEqual({ source: ["b", "a"], pool: ["gold"], language: [""], text: "x y", order: "newest" });
  });

  it("is one question however it is written", () => {
    const same = new URLSearchParams("order=newest&text=x+y&pool=gold&source=a&source=b&language=");
    expect(keyOf(same)).toBe(keyOf(address));
    expect(keyOf(new URLSearchParams("source=a"))).not.toBe(keyOf(address));
  });

  it("counts filters, not the order, and knows ids of ours", () => {
    expect(filtersSet(address)).toBe(4);
    expect(filtersSet(new URLSearchParams("order=newest"))).toBe(0);
    expect(isId(` c-${"0af3".repeat(8)} `)).toBe(true);
    expect(isId("c-nothing")).toBe(false);
  });
});
