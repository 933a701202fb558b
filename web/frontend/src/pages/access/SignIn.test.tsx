import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../../testing/render";
import { SignIn } from "./SignIn";

afterEach(() => vi.unstubAllGlobals());

describe("SignIn", () => {
  it("asks for a name alone where there are no accounts", async () => {
    const { container } = renderAt(<SignIn openAccess />);
    expect(screen.getByLabelText(/Name/)).toHaveFocus();
    expect(screen.queryByLabelText(/Password/)).not.toBeInTheDocument();
    expect((await axe(container)).violations).toEqual([]);
  });

  it("says in the server's words why somebody cannot sign in", async () => {
    const problem = { status: 401, code: "unauthorized", detail: "wrong name or password" };
    vi.stubGlobal("fetch", async () => new Response(JSON.stringify(problem), { status: 401 }));
    renderAt(<SignIn openAccess={false} />);
    await userEvent.type(screen.getByLabelText(/Name/), "ada");
    await userEvent.type(screen.getByLabelText(/Password/), "wrong");
    await userEvent.click(screen.getByRole("button", { name: "Sign in" }));
    expect(await screen.findByRole("alert")).toHaveTextContent("wrong name or password");
  });
});
