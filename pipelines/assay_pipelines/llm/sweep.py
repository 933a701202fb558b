"""Passes over questions: what is allowed, asked, answered and spent; every answer is written within a second.

Covers: a pass of any judge (`AskingPass`); one model call for each of many items, as attributes and checks need it
(`sweep`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from assay.errors import BusyError
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_pipelines.llm.annotators import Annotator
from assay_pipelines.llm.budget import Budget, Spending, spending_of
from assay_pipelines.llm.calls import CallLog
from assay_pipelines.llm.endpoint import Answered, ModelCall, ModelCaller, Outcome
from assay_pipelines.llm.replies import StrictAnswer

WRITE_EVERY_S = 1.0  #: how long a result may wait for company before it is written
CHUNK = 1_024  #: questions asked at once: bounds the memory of their rendered prompts

A = TypeVar("A", bound=StrictAnswer)
Q = TypeVar("Q")
T = TypeVar("T")


class Recorder(Generic[T]):
    """A context manager: leaving it writes what is still waiting, then raises what went wrong with writing, unless
    something else is being raised already."""

    def __init__(self, write: Callable[[Sequence[T]], None]) -> None:
        """`write` stores a batch in one unit of work; BusyError makes it wait for the next turn."""
        self._write = write
        self._waiting: queue.SimpleQueue[tuple[T] | None] = queue.SimpleQueue()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="assay-recorder", daemon=True)

    def __enter__(self) -> Recorder[T]:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._waiting.put(None)
        self._thread.join()
        if self._error is not None:
            if error is None:
                raise self._error
            error.add_note(f"and some answers could not be written: {self._error}")

    def put(self, item: T) -> None:
        """Raises what an earlier batch failed with."""
        if self._error is not None:
            raise self._error
        self._waiting.put((item,))

    def _run(self) -> None:
        batch: list[T] = []
        more = True
        while more:
            entry = self._waiting.get()
            deadline = time.monotonic() + WRITE_EVERY_S
            while entry is not None:
                batch.append(entry[0])
                try:
                    entry = self._waiting.get(timeout=max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    break
            else:
                more = False
            try:
                if batch:
                    self._write(batch)
                batch = []
            except BusyError as error:  # keep them: the holder may be done by the next time
                if not more:
                    self._error = error
            except BaseException as error:
                self._error = error
                return


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


class AskingPass(Generic[T]):
    """One pass over questions: counts, and answers on their way to the store. `write` stores a batch of answers.
    `budget`: a `Spending` carries what earlier passes spent. `advance` gets the number of questions just done."""

    def __init__(
        self, write: Callable[[Sequence[T]], None], budget: Budget | Spending | None, advance: Advance
    ) -> None:
        self.spending = spending_of(budget)
        self._before = replace(self.spending)
        self._recorder, self._advance = Recorder(write), advance
        self._questions = self._answers = 0
        self._failures: Counter[str] = Counter()
        self._stopped: str | None = None

    def run(self, questions: Sequence[Q], ask: Callable[[Sequence[Q]], str | None]) -> None:
        """`ask` gets as many of the questions as the budget allows, some at a time; it returns why it stopped early, if
        it did. What was answered before anything is raised is written."""
        allowed = self.spending.take_questions(len(questions))
        if allowed < len(questions):
            self._stopped = f"budget of {self.spending.budget.questions} questions"
        try:
            with self._recorder:
                for start in range(0, allowed, CHUNK):
                    if (why := ask(questions[start : min(start + CHUNK, allowed)])) is not None:
                        self._stopped = why
                        break
        finally:
            self.spending.questions -= allowed - self._questions  # those not reached are not spent

    def add_answer(self, answer: T) -> None:
        self._recorder.put(answer)
        self._questions += 1
        self._answers += 1
        self._advance(1)

    def add_failure(self, code: str, *, was_sent: bool) -> None:
        self._failures[code] += 1
        self._questions += was_sent
        self._advance(1)

    def report(self, judge: str, known: int) -> SweepReport:
        """`known`: how many the caller left out because they are in the store."""
        now, before = self.spending, self._before
        return SweepReport(
            judge,
            self._questions,
            self._answers,
            known,
            dict(sorted(self._failures.items())),
            now.calls - before.calls,
            now.tokens_in - before.tokens_in,
            now.tokens_out - before.tokens_out,
            now.cost - before.cost,
            self._stopped,
        )


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
    current: AskingPass[tuple[str, A]] = AskingPass(write, budget, advance)

    def ask(part: Sequence[ModelCall[A]]) -> str | None:
        def take(index: int, outcomes: Sequence[Outcome[A]]) -> None:
            (outcome,) = outcomes
            if isinstance(outcome, Answered):
                current.add_answer((part[index].ref, outcome.value))
            else:
                current.add_failure(outcome.code, was_sent=outcome.was_sent)

        with CallLog(workspace, annotator.id) as log:
            return endpoint.ask_all([[call] for call in part], take, log=log, spending=current.spending, run_id=run_id)

    current.run(calls, ask)
    return current.report(annotator.name, already_stored)
