import { fireEvent, screen } from "@testing-library/react";
import { afterEach, describe, expect, it, vi } from "vitest";

import { renderAt } from "../../../testing/render";
import { PlaygroundPage } from "./PlaygroundPage";

afterEach(() => {
  vi.unstubAllGlobals();
  window.localStorage.clear();
});

const MODEL = {
  name: "helpful",
  kind: "scalar",
  version: "26a526aa",
  max_length: 2048,
  parity: "passed",
  calibrated: false,
  principle_use: "refused",
  principles: [],
};

describe("PlaygroundPage", () => {
  it("asks the only model that is served without its being chosen", async () => {
    const asked: unknown[] = [];
    vi.stubGlobal("fetch", async (request: Request) => {
      if (request.method === "GET") return Response.json({ servers: [{ address: "http://rm", error: null, models: [MODEL] }] });
      asked.push(await request.json());
      return Response.json({ status: 422, code: "bad_input", detail: "too long" }, { status: 422 });
    });
    renderAt(<PlaygroundPage />);
    fireEvent.change(await screen.findByLabelText("Message 1"), { target: { value: "2 + 2?" } });
    fireEvent.change(screen.getByLabelText("Response 1"), { target: { value: "4" } });
    fireEvent.keyDown(screen.getByLabelText("Response 1"), { key: "Enter", ctrlKey: true });
    expect(await screen.findByRole("alert")).toHaveTextContent("too long");
    expect(asked).toMatchObject([{ models: [{ address: "http://rm", model: "helpful" }] }]);
  });
});
