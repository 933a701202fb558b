import { expect, test } from "vitest";

import { duration } from "./duration";

test("a time has at most two units, which never come to a whole one of the next", () => {
  expect([0.04, 9.94, 9.96, 59.4, 59.6, 119.7, 3599.6, 7384].map(duration)).toEqual([
    "0.0 s",
    "9.9 s",
    "10 s",
    "59 s",
    "1 min 0 s",
    "2 min 0 s",
    "1 h 0 min",
    "2 h 3 min",
  ]);
  expect(duration(null)).toBe("–");
});
