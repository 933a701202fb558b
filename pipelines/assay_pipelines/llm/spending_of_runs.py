"""The cost of a run's model calls so far, from the store and from journals that are not folded into it yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.workspace import Workspace
from assay_pipelines.llm.calls import waiting_attempts


@dataclass(frozen=True, slots=True)
class RunSpending:
    """`calls`: attempts, failed ones too. `tokens`: in and out. `cost`: None where a reply has no price."""

    calls: int
    tokens: int
    cost: float | None


def spending_of_runs(workspace: Workspace, runs: Sequence[str]) -> dict[str, RunSpending]:
    """For the runs that called a model. Raises BusyError while another process holds the store."""
    if not runs:
        return {}
    # First: an attempt that is folded meanwhile is then in both, never in neither; its id shows it.
    waiting = [attempt for attempt in waiting_attempts(workspace) if attempt.run_id in runs]
    with workspace.store.unit() as db:
        stored = db.execute(
            """SELECT run_id, count(*), sum(coalesce(tokens_in, 0) + coalesce(tokens_out, 0))::BIGINT,
                      coalesce(sum(cost), 0),
                      count(*) FILTER (cost IS NULL AND coalesce(tokens_in, 0) + coalesce(tokens_out, 0) > 0)
               FROM model_calls
               WHERE list_contains($runs, run_id) AND NOT list_contains($waiting, call_id) GROUP BY run_id""",
            {"runs": list(runs), "waiting": [attempt.call_id for attempt in waiting]},
        ).fetchall()
    by_run: dict[str, RunSpending] = {
        run: RunSpending(calls, tokens, None if unpriced else cost) for run, calls, tokens, cost, unpriced in stored
    }
    for attempt in waiting:
        tokens = (attempt.tokens_in or 0) + (attempt.tokens_out or 0)
        cost = attempt.cost if attempt.cost is not None or tokens else 0.0  # without a reply there is nothing to pay
        before = by_run.get(str(attempt.run_id), RunSpending(0, 0, 0.0))
        cost_so_far = None if before.cost is None or cost is None else before.cost + cost
        by_run[str(attempt.run_id)] = RunSpending(before.calls + 1, before.tokens + tokens, cost_so_far)
    return by_run
