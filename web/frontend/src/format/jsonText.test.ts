import { describe, expect, it } from "vitest";

import { indented } from "./jsonText";

describe("indented", () => {
  it("writes a value a line and no token anew", () => {
    const text = '{"a":[1.0,12345678901234567890,{}],"b, {c}":"x: \\"y\\"","d":{"e":null},"f":[]}';
    expect(indented(text)).toBe(
      ["{", '  "a": [', "    1.0,", "    12345678901234567890,", "    {}", "  ],", '  "b, {c}": "x: \\"y\\"",', '  "d": {', '    "e": null', "  },", '  "f": []', "}"].join("\n"),
    );
    expect(indented("[]")).toBe("[]");
  });

  it("leaves alone what is no object or array", () => {
    for (const text of ['{"a":', "rain", "12", '"text"', ""]) expect(indented(text)).toBeNull();
  });
});
