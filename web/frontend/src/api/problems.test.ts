import { expect, it } from "vitest";

import { problemOf } from "./problems";

it.each([
  [{ detail: "field 'ticket': the item was given to somebody else" }, "the item was given to somebody else"],
  [{ detail: "pairs.jsonl, row 3, field 'chosen': it is empty" }, "pairs.jsonl, row 3, field 'chosen': it is empty"],
  [{ detail: "items.0.gold_checks: too large", errors: [{ field: "items.0.gold_checks", message: "too large" }] }, "gold checks: too large"],
  [{}, "Conflict"],
])("says what went wrong without a program's names: %j", async (reply, message) => {
  const problem = await problemOf(Response.json(reply, { status: 409, statusText: "Conflict" }));
  expect(problem.message).toBe(message);
});
