"""One model call for each of many items, as attributes and checks need it, written within a second of the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_pipelines.llm.annotators import Annotator
from assay_pipelines.llm.budget import Budget, Spending, spending_of
from assay_pipelines.llm.calls import CallLog
from assay_pipelines.llm.endpoint import Answered, ModelCall, ModelCaller, Outcome
from assay_pipelines.llm.recorder import Recorder
from assay_pipelines.llm.replies import StrictAnswer

CHUNK = 1_024

A = TypeVar("A", bound=StrictAnswer)


@dataclass(frozen=True)
class SweepReport:
    """The outcome of one pass over questions, for one judge. `known`: answered in an earlier run, not asked again."""

    judge: str
    asked: int = 0
    answered: int = 0
    known: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0  #: in the currency of the configured prices; 0 where none are
    stopped: str | None = None  #: why it stopped early, e.g. the budget; the rest can be asked by running again


def sweep(
    workspace: Workspace,
    endpoint: ModelCaller,
    annotator: Annotator,
    calls: Sequence[ModelCall[A]],
    write: Callable[[Sequence[tuple[str, A]]], None],
    run_id: str | None,
    *,
    already_stored: int = 0,
    budget: Budget | Spending | None = None,
    advance: Advance = silent,
) -> SweepReport:
    """Make every call; `write` gets batches of (ref, answer) for the store. A resumed pass pays for nothing twice.

    `already_stored`: how many the caller skipped because they are in the store, for the report. Raises AssayError for
    what concerns all calls alike; what was answered before is written.
    """
    spending = spending_of(budget)
    before = replace(spending)
    allowed = spending.take_questions(len(calls))
    stopped = f"budget of {spending.budget.questions} questions" if allowed < len(calls) else None
    failures: Counter[str] = Counter()
    calls_made = answered = 0
    recorder: Recorder[tuple[str, A]] = Recorder(write)
    part: Sequence[ModelCall[A]] = ()

    def take(index: int, outcomes: Sequence[Outcome[A]]) -> None:
        nonlocal calls_made, answered
        (outcome,) = outcomes
        if isinstance(outcome, Answered):
            recorder.put((part[index].ref, outcome.value))
            calls_made += 1
            answered += 1
        else:
            failures[outcome.code] += 1
            calls_made += outcome.was_sent
        advance(1)

    try:
        with recorder:
            for start in range(0, allowed, CHUNK):
                part = calls[start : min(start + CHUNK, allowed)]
                with CallLog(workspace, annotator.id) as log:
                    why = endpoint.ask_all([[call] for call in part], take, log=log, spending=spending, run_id=run_id)
                if why is not None:
                    stopped = why
                    break
    finally:
        spending.questions -= allowed - calls_made  # those not reached are not spent
    return SweepReport(
        judge=annotator.name,
        asked=calls_made,
        answered=answered,
        known=already_stored,
        failures=dict(sorted(failures.items())),
        attempts=spending.calls - before.calls,
        tokens_in=spending.tokens_in - before.tokens_in,
        tokens_out=spending.tokens_out - before.tokens_out,
        cost=spending.cost - before.cost,
        stopped=stopped,
    )
