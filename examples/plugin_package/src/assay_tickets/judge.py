"""The judge `style-guide`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.domain import AnnotatorKind, Answer
from assay_pipelines.judging.judge import OnResult, Opinion, Vote
from assay_pipelines.llm.questions import Question


class StyleGuide:
    """Prefers the response with fewer of the phrases that a style guide forbids."""

    kind: AnnotatorKind = "verifier"
    name = "style-guide"

    def __init__(self, forbidden: Sequence[str]) -> None:
        self.forbidden = [phrase.lower() for phrase in forbidden]
        self.config: Mapping[str, Any] = {"forbidden": self.forbidden}

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        for number, question in enumerate(questions):
            a, b = self.count(question.response_a), self.count(question.response_b)
            answer: Answer = "tie" if a == b else "A" if a < b else "B"
            on_result(number, Opinion(answer, None, (Vote(answer),)))

    def count(self, response: str) -> int:
        return sum(response.lower().count(phrase) for phrase in self.forbidden)
