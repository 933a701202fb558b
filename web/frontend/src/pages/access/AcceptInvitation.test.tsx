import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../../testing/render";
import { AcceptInvitation } from "./AcceptInvitation";

afterEach(() => vi.unstubAllGlobals());

const INVITED = { role: "curator", name: null, expires_at: 2e9 };

describe("AcceptInvitation", () => {
  it("keeps the token out of every address, and sends it once the two passwords agree", async () => {
    const asked: Request[] = [];
    vi.stubGlobal("fetch", async (request: Request) => {
      asked.push(request.clone());
      if (request.method === "GET") return Response.json(INVITED);
      return Response.json({ status: 409, code: "conflict", detail: "there is an account 'grace' already" }, { status: 409 });
    });
    const { container } = renderAt(<AcceptInvitation />, "/invitation#secret-token");
    await typed(await screen.findByLabelText(/^Name/), "grace");
    await typed(screen.getByLabelText(/^New password/), "correct horse battery");
    await typed(screen.getByLabelText(/^The same again/), "correct horse batterie");
    const make = screen.getByRole("button", { name: "Make the account" });
    expect(make).toBeDisabled();
    expect(screen.getByText("The two are not the same")).toBeInTheDocument();
    await typed(screen.getByLabelText(/^The same again/), "correct horse battery");
    await userEvent.click(make);
    expect(await screen.findByRole("alert")).toHaveTextContent("there is an account 'grace' already");
    expect((await axe(container)).violations).toEqual([]);
    expect(asked.map((request) => new URL(request.url).pathname)).toEqual(["/api/invitation", "/api/invitation"]);
    expect(asked.some((request) => request.url.includes("secret-token"))).toBe(false);
    expect(asked[0]?.headers.get("X-Invitation")).toBe("secret-token");
    expect(await asked[1]?.json()).toEqual({ token: "secret-token", name: "grace", password: "correct horse battery" });
  });
});

async function typed(field: HTMLElement, text: string): Promise<void> {
  await userEvent.clear(field);
  await userEvent.click(field);
  await userEvent.paste(text);
}
