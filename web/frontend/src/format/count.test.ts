import { expect, test } from "vitest";

import { clipped } from "./clipped";
import { count, counted } from "./count";
import { percent } from "./percent";

test("counts have their thousands apart and their noun in the right number", () => {
  expect(count(1234567)).toBe("1,234,567");
  expect(count(undefined)).toBe("–");
  expect(counted(1, "row")).toBe("1 row");
  expect(counted(0, "row")).toBe("0 rows");
  expect([counted(1, "person", "people"), counted(20, "person", "people")]).toEqual(["1 person", "20 people"]);
});

test("a share of nothing is not 0 %", () => {
  expect(percent(0.1234)).toBe("12.3 %");
  expect(percent(1, 0)).toBe("100 %");
  expect(percent(null)).toBe("–");
});

test("a text is cut only where it is longer", () => {
  expect(clipped("abcde", 5)).toBe("abcde");
  expect(clipped("abcdef", 5)).toBe("abcd…");
});
