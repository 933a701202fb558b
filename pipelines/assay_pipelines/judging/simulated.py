"""A simulated annotator of stated accuracy, for tests and experiments.

Every draw comes from a hash of seed, comparison, sample and order, so that it is the same on every machine and in every
order of asking. It errs independently of how hard a pair is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le

from assay.domain import AnnotatorKind, Answer, ShownOrder, swap_answer
from assay.ids import fraction
from assay.settings import CheckedSettings
from assay_pipelines.judging.judge import JudgeFailure, OnResult, Vote
from assay_pipelines.judging.merging import merge_votes
from assay_pipelines.llm.questions import Question, orders


@dataclass(frozen=True)
class SimulatedConfig(CheckedSettings):
    """`accuracy`: chance of the true answer where it votes A or B without looking at positions. `tie_rate`: chance of
    a tie whatever is true. `position_bias`: chance of taking what is shown first whatever is true."""

    accuracy: Annotated[float, Ge(0), Le(1)] = 0.8
    tie_rate: Annotated[float, Ge(0), Le(1)] = 0.0
    position_bias: Annotated[float, Ge(0), Le(1)] = 0.0
    samples: Annotated[int, Ge(1)] = 1
    both_orders: bool = False
    seed: int = 0


class SimulatedJudge:
    """Answers from the truth. `truth`: comparison id -> A, B or tie; others are failures (`no_answer`)."""

    kind: AnnotatorKind = "simulated"

    def __init__(self, truth: Mapping[str, Answer], config: SimulatedConfig | None = None, name: str = "simulated"):
        self.truth = truth
        self.settings = config or SimulatedConfig()
        self.name = name

    @property
    def config(self) -> Mapping[str, Any]:
        return asdict(self.settings)

    def judge(self, questions: Sequence[Question], on_result: OnResult) -> None:
        for index, question in enumerate(questions):
            true = self.truth.get(question.comparison_id)
            if true is None:
                on_result(index, JudgeFailure("no_answer", "the truth is not known to it"))
                continue
            votes = [
                self._vote(question.comparison_id, true, order, sample)
                for sample in range(self.settings.samples)
                for order in orders(question.comparison_id, sample, self.settings.seed, both=self.settings.both_orders)
            ]
            on_result(index, merge_votes(votes))

    def _vote(self, comparison: str, true: Answer, order: ShownOrder, sample: int) -> Vote:
        s = self.settings

        def drawn(what: str) -> float:
            return fraction(s.seed, self.name, what, comparison, order, sample)

        answer: Answer
        if drawn("tie") < s.tie_rate:
            answer = "tie"
        elif drawn("position") < s.position_bias:
            answer = "A" if order == "AB" else "B"
        elif true in ("A", "B"):
            answer = true if drawn("answer") < s.accuracy else swap_answer(true)
        else:
            answer = true if drawn("answer") < s.accuracy else ("A" if drawn("side") < 0.5 else "B")
        return Vote(answer, order, sample)
