import { afterEach, describe, expect, it, vi } from "vitest";

import { dropOldDrafts, EMPTY, loadDraft, saveDraft } from "./drafts";

const DAY_MS = 86_400_000;

describe("drafts", () => {
  afterEach(() => {
    vi.useRealTimers();
    localStorage.clear();
  });

  it("are dropped a month after their last change, and nothing else is", () => {
    vi.useFakeTimers({ now: 0 });
    saveDraft("old", { ...EMPTY, rationale: "begun" });
    localStorage.setItem("assay.single-keys", "true");
    vi.setSystemTime(2 * DAY_MS);
    saveDraft("young", { ...EMPTY, rationale: "begun too" });
    dropOldDrafts(31 * DAY_MS);
    expect(loadDraft("old")).toEqual(EMPTY);
    expect(loadDraft("young").rationale).toBe("begun too");
    expect(localStorage.getItem("assay.single-keys")).toBe("true");
  });
});
