"""What every judge is asked and what it may answer.

Covers: `Question` (a comparison with its attributes and labelled demonstrations), `Vote` (one sample, in the order it
was shown), `Opinion` (what a judge's votes come to), `JudgeFailure`, and the `Judge` protocol. Leaves out: the
judges themselves, and asking many questions with a budget, records and resumption (beside this module).

A and B are always the comparison's canonical order; a vote notes in which order the two were shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from assay.data.pair_attributes import PairAttributes
from assay.domain import AnnotatorKind, Answer, Prompt

ShownOrder: TypeAlias = Literal["AB", "BA"]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A comparison that people have labelled, shown to a judge as an example."""

    prompt: Prompt
    response_a: str
    response_b: str
    answer: Answer
    attributes: PairAttributes | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """One comparison as it is put to a judge."""

    comparison_id: str
    prompt: Prompt
    response_a: str
    response_b: str
    attributes: PairAttributes | None = None
    demonstrations: tuple[Demonstration, ...] = ()


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


@dataclass(frozen=True)
class JudgingReport:
    """What one pass over questions came to, for one judge. `known`: answered in an earlier run and not asked again."""

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
