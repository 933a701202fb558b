import { expect, test } from "vitest";

import { determined, figure, interval, signed } from "./figure";

test("a figure has its digits, a true minus, and a dash for nothing", () => {
  expect(figure(0.5)).toBe("0.500");
  expect(figure(-0.5, 2)).toBe("\u22120.50");
  expect(figure(0)).toBe("0.000");
  expect(figure(null)).toBe("–");
});

test("a difference says its sign", () => {
  expect(signed(0.25, 2)).toBe("+0.25");
  expect(signed(-0.25, 2)).toBe("\u22120.25");
});

test("an interval needs both ends", () => {
  expect(interval(-0.1, 0.3, 1)).toBe("\u22120.1 to 0.3");
  expect(interval(0.1, undefined)).toBe("–");
});

test("an interval of too few prompts is undetermined", () => {
  expect(determined(0.1, 0.3, 1)).toBe("0.1 to 0.3");
  expect(determined(null, null)).toBe("undetermined: few or all alike");
});
