import { screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";

import { clearPage } from "./page";
import { renderAt } from "./render";

it("nothing that a file leaves behind is there for the next", async () => {
  const fetch = globalThis.fetch;
  vi.stubGlobal("fetch", () => Promise.reject(new Error("stub")));
  vi.useFakeTimers();
  localStorage.setItem("kept", "1");
  sessionStorage.setItem("kept", "1");
  window.history.pushState(null, "", "/data?text=rare");
  document.title = "left";
  document.documentElement.dataset.left = "1";
  document.body.append(document.createElement("dialog"));
  const { api } = await import("../api/client");
  clearPage();
  expect([globalThis.fetch, vi.isFakeTimers()]).toEqual([fetch, false]);
  expect([localStorage.length, sessionStorage.length]).toEqual([0, 0]);
  expect([window.location.pathname, window.location.search, document.title]).toEqual(["/", "", ""]);
  expect([document.documentElement.getAttributeNames(), document.body.childElementCount]).toEqual([[], 0]);
  expect((await import("../api/client")).api).not.toBe(api);
  // The component library finds its way on a page that was cleared.
  renderAt(<p>next</p>);
  expect(screen.getByText("next")).toBeInTheDocument();
});
