import { expect, test } from "vitest";

import { mostTold } from "./mostTold";

test("two who have nothing in common are never the first choice", () => {
  const nothing = { between: "source_people" as const, common: 0, agreed: 0, opposed: 0, softened: 0 };
  const agreeing = { between: "source_judges" as const, common: 40, agreed: 40, opposed: 0, softened: 0 };
  expect(mostTold([nothing, agreeing])).toBe("source_judges");
  expect(mostTold([nothing, agreeing, { between: "people_judges", common: 9, agreed: 5, opposed: 4, softened: 0 }])).toBe("people_judges");
});
