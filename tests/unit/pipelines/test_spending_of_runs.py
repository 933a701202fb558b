"""What runs have spent: attempts in the store and in the journal count once, and no price is not a price of 0."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from assay.workspace import Workspace
from assay_pipelines.llm.calls import Attempt, CallLog, insert_attempts, spending_of_runs

ATTEMPT = Attempt(
    "call-0", "key", 1, "judge", "c", "someone", "AB", 0, "m", "http://x", "p", "answered", 200, 900, 100, 0.25, 0.1,
    None, "{}", "run-1", "2026-01-01T00:00:00+00:00",
)  # fmt: skip


def test_attempts_that_are_not_folded_yet_count_once(workspace: Workspace) -> None:
    folded = [replace(ATTEMPT, call_id=f"call-{n}") for n in range(3)]
    with workspace.store.unit() as db:
        insert_attempts(db, folded)
    refused = replace(ATTEMPT, call_id="call-9", status=429, tokens_in=None, tokens_out=None, cost=None)
    lines = [folded[2], replace(ATTEMPT, call_id="call-8"), refused, replace(ATTEMPT, call_id="x", run_id="run-2")]
    journal = workspace.journal / "calls-someone.jsonl"
    journal.write_text("".join(json.dumps(asdict(one)) + "\n" for one in lines) + '{"torn')
    found = spending_of_runs(workspace, ["run-1", "run-3"])
    assert list(found) == ["run-1"]
    assert (found["run-1"].calls, found["run-1"].tokens) == (5, 4000)
    assert found["run-1"].cost == pytest.approx(1.0)
    with CallLog(workspace, "someone"):
        pass  # folds
    assert spending_of_runs(workspace, ["run-1"]) == found


@pytest.mark.parametrize("folded", [True, False])
def test_a_reply_without_a_price_leaves_the_cost_unknown(workspace: Workspace, folded: bool) -> None:
    with CallLog(workspace, "someone") as log:
        log.append(ATTEMPT)
        log.append(replace(ATTEMPT, call_id="call-1", cost=None))
        if folded:
            log.fold()
        found = spending_of_runs(workspace, ["run-1"])["run-1"]
    assert (found.calls, found.cost) == (2, None)
