"""For tests of online loops: a judge of lengths that notes every answer in a file, and a metric that is an alarm."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.domain import AnnotatorKind, Answer
from assay_pipelines.judging.judge import OnResult, Opinion, Vote
from assay_pipelines.llm.questions import Question
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


@dataclass(frozen=True)
class AlarmAt:
    """S16: `alarm` is 1 in one step."""

    step: int

    def measure(self, report: StepReport) -> dict[str, float]:
        return {"alarm": float(report.step == self.step)}
