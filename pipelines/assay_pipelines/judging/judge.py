"""What a judge is and what it may answer.

A and B are always the comparison's canonical order; a vote notes in which order the two were shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from assay.domain import AnnotatorKind, Answer, ShownOrder
from assay_pipelines.llm.questions import Question


@dataclass(frozen=True, slots=True)
class Vote:
    """One sample of a judge."""

    answer: Answer
    shown_order: ShownOrder | None = None  #: None: the judge sees no order (a reward model, a verifier)
    sample: int = 0
    confidence: float | None = None
    rationale: str | None = None
    seconds: float | None = None
    strength: int | None = None  #: 0 (barely) to 3 (far better); None = not asked


@dataclass(frozen=True, slots=True)
class Opinion:
    """`answer`: the votes merged (self-consistency). `confidence`: share of the votes for it, or the judge's own."""

    answer: Answer
    confidence: float | None
    votes: tuple[Vote, ...]
    rationale: str | None = None
    strength: int | None = None  #: 0 to 3, of the votes for the answer


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """No answer. Never counted as a tie or a skip; asked again on the next run. `code`: e.g. timeout, refused,
    bad_answer, over_budget, no_answer."""

    code: str
    message: str


JudgeResult: TypeAlias = Opinion | JudgeFailure
#: Called with (index of the question, result) as soon as it is known, so that a kill loses little.
OnResult: TypeAlias = Callable[[int, JudgeResult], None]


class Judge(Protocol):
    """`kind` and `name` identify the annotator in the store; `config` says how it answers (model, prompt hash,
    samples, both orders), without secrets."""

    @property
    def kind(self) -> AnnotatorKind: ...
    @property
    def name(self) -> str: ...
    @property
    def config(self) -> Mapping[str, Any]: ...

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        """Answer every question, each exactly once through `on_result`, in any order."""
