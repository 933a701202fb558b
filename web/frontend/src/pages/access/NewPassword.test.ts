import { describe, expect, it } from "vitest";

import { passwordProblem } from "./NewPassword";

// The server's own rule is in web/assay_web/access/passwords.py; its test has the same cases.
describe("passwordProblem", () => {
  it.each([
    ["ada", "short", "10 characters or more"],
    ["grace hopper", "Grace Hopper1", "It is little more than the name"],
    ["ada", "canada dry 1", null],
    ["", "correct horse", null],
  ])("of %s: %s", (name, password, said) => {
    expect(passwordProblem(name, password, password)).toBe(said);
  });

  it("asks for the same twice", () => {
    expect(passwordProblem("ada", "correct horse", "correct hose")).toBe("The two are not the same");
  });
});
