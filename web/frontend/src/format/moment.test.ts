import { expect, test } from "vitest";

import { instant, moment, momentInWords } from "./moment";

const local = new Date(2026, 1, 3, 4, 5, 6);

test("seconds and ISO 8601 are the same time of the reader's clock", () => {
  for (const at of [local.getTime() / 1000, local.toISOString()]) {
    expect(moment(at)).toBe("2026-02-03 04:05");
    expect(instant(at)).toBe("2026-02-03 04:05:06");
    expect(momentInWords(at)).toBe("3 Feb 2026, 04:05");
  }
});
