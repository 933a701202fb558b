"""For tests of online loops: a judge of lengths that notes every answer in a file, and a metric that is an alarm."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from assay.domain import AnnotatorKind, Answer
from assay.errors import BackendError
from assay.runs.record import Run
from assay_pipelines.judging.judge import OnResult, Opinion, Vote
from assay_pipelines.llm.questions import Question
from assay_pipelines.online.label_sources import kind as labels
from assay_policy_training.plugins.protocols import StepReport

NOTES = "ASSAY_TEST_NOTES"  #: variable: the file of notes


class LongerIsBetter:
    kind: AnnotatorKind = "llm"
    name = "longer"

    @property
    def config(self) -> Mapping[str, Any]:
        return {"rule": "length"}

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        for index, question in enumerate(questions):
            a, b = len(str(question.response_a)), len(str(question.response_b))
            answer: Answer = "A" if a > b else "B" if b > a else "tie"
            if path := os.environ.get(NOTES):
                with Path(path).open("a", encoding="utf-8") as notes:
                    notes.write(f"{question.comparison_id}\n")
            on_result(index, Opinion(answer, 1.0, (Vote(answer, confidence=1.0),)))


@dataclass
class Source:
    """A label source that prefers A. `down`: so many calls fail first. `waits`: each collection has one answer.
    `answers`: none of its questions gets a label without."""

    name: ClassVar[str] = "source"
    waits: bool = False
    down: int = 0
    answers: bool = True
    price_of_pair: float = 0.0
    calls: int = field(init=False, default=0)

    def ask(self, pairs: Sequence[labels.AskedPair], run: Run, *, money: float | None) -> list[labels.Answer]:
        self.calls += 1
        if self.calls <= self.down:
            raise BackendError("nobody is there")
        label: Any = "A" if self.answers else None
        answered = [labels.Answer(pair.comparison_id, label, cost=self.price_of_pair, problem="") for pair in pairs]
        return [] if self.waits else answered

    def collect(self, waiting: Sequence[str], run: Run) -> list[labels.Answer]:
        return [labels.Answer(waiting[0], "A", cost=self.price_of_pair)]


@dataclass(frozen=True)
class AlarmAt:
    """S16: `alarm` is 1 in one step; measured after the others, as the real one."""

    step: int
    reads_metrics: ClassVar[bool] = True

    def measure(self, report: StepReport) -> dict[str, float]:
        return {"alarm": float(report.step == self.step)}
