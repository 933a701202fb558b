"""The right answer to a question, of which there may be several spellings: exact match after normalising.

Covers: the rule of SQuAD's and TriviaQA's evaluation (recalled): lower case, no punctuation, no articles, single
spaces. Leaves out: overlap of words (F1); numbers and formulas (`maths`).
"""

import re
import string
from dataclasses import dataclass, field
from typing import ClassVar

from assay.errors import BadInputError
from assay_serving.verifiers.constraint import Constraint, Verdict

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """What is nothing but an article or punctuation stays: "A" is an answer, and "" is none of it."""
    plain = " ".join(text.lower().split())
    unmarked = " ".join(plain.translate(_PUNCTUATION).split())
    return " ".join(_ARTICLES.sub(" ", unmarked).split()) or unmarked or plain


@dataclass(frozen=True)
class ExactAnswer(Constraint):
    """The response is one of `answers`, normalised; what stands in the last <answer>...</answer>, where it has one."""

    names_the_answer: ClassVar[bool] = True
    answers: tuple[str, ...] = field()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.answers or not all(isinstance(answer, str) and answer.strip() for answer in self.answers):
            raise BadInputError("needs at least one text", field="answers")

    def judge(self, response: str) -> Verdict:
        _, opens, last = response.rpartition("<answer>")
        answer = last.partition("</answer>")[0] if opens else response
        passed = normalised(answer) in {normalised(right) for right in self.answers}
        return Verdict(passed, f"answers {answer.strip()[:60]!r}, {self.answers[0][:60]!r} is right")
