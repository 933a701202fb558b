"""A pairwise generative judge: two responses in both orders, with several samples.

Covers: `compare`, the un-swapped decisions of each order, the combined probability, agreement and failures. Leaves
out: accuracy over many pairs (`assay_rm_training.generative.evaluation`), the rules themselves (`voting`).

A and B are always the pair's own first and second response; an order says which of the two was shown as A.
"""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from assay.annotation.votes import PLURALITY, Tally, tally
from assay.domain import Prompt, Response
from assay.errors import BadInputError
from assay.models.spec import Judging, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay.statistics.logistic import sigmoid
from assay_serving.generative.answers import JudgeSample, Writer
from assay_serving.generative.engine import fit_question
from assay_serving.generative.templates import JudgeFormat, format_named
from assay_serving.generative.voting import Decision, both_orders, unpermute
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo

#: Which response is shown at each position: the pair as it is, and swapped.
ORDERS = ((0, 1), (1, 0))


@dataclass(frozen=True, slots=True)
class PairQuestion:
    prompt: Prompt
    first: Response
    second: Response
    principle: str | None = None


@dataclass(frozen=True, slots=True)
class OrderOutcome:
    """The outcome of one order, in the pair's own labels.

    `order`: which response was at each position. `answers`: as the judge wrote them, A meaning the first shown.
    `decision`: majority of the stated verdicts, "tie" where they are even, None where none could be read.
    `probability`: of A, mean over the readable samples; None where none is, or the judge gives no log-probs.
    """

    order: tuple[int, int]
    answers: tuple[JudgeSample, ...]
    decision: Decision
    probability: float | None
    agreement: float | None

    @property
    def votes(self) -> list[Decision]:
        """Each sample's verdict in the pair's own labels, None for one that could not be read."""
        return [unswap(answer.label, self.order) for answer in self.answers]

    @property
    def first_shown(self) -> str:
        return "AB"[self.order[0]]


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """A judge's decision on a pair. `probability` of A: the mean over both orders, or of one order where the
    other has none (then `consistent` is None); None where neither did.

    `uncertainty`: standard deviation of P(A) over all readable samples. `truncated`: older turns were dropped.
    """

    orders: tuple[OrderOutcome, ...]
    probability: float | None
    uncertainty: float | None
    truncated: bool

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """By order: what rules AND and SUM (`voting.right_by_and`, `right_by_sum`) take."""
        return tuple(outcome.decision for outcome in self.orders)

    @property
    def decision(self) -> Decision:
        """By `probability`; without log-probs by the sum of the orders' decisions. "tie" where even, None unread."""
        if self.probability is not None:
            return "A" if self.probability > 0.5 else "B" if self.probability < 0.5 else "tie"
        decided = [d for d in self.decisions if d is not None]
        if not decided:
            return None
        balance = sum((d == "A") - (d == "B") for d in decided)
        return "A" if balance > 0 else "B" if balance < 0 else "tie"

    @property
    def consistent(self) -> bool | None:
        """Whether both orders decide for the same response; None where one has no decision or was not asked."""
        if len(self.orders) < 2 or any(d is None for d in self.decisions):
            return None
        return self.decisions[0] == self.decisions[1] and self.decisions[0] != "tie"

    @property
    def faults(self) -> Counter[str]:
        return Counter(a.fault for o in self.orders for a in o.answers if a.fault is not None)


class PairwiseJudge:
    """Compares pairs with a writer."""

    def __init__(self, writer: Writer, spec: RewardModelSpec, *, seed: int = 0) -> None:
        form = format_named(spec.judging.format) if spec.judging is not None else None
        if spec.judging is None or form is None or form.responses != 2:
            raise BadInputError(f"{writer.info.name} does not compare pairs: it is no pairwise generative model")
        self.spec, self.writer, self.seed = spec, writer, seed
        self.judging: Judging = spec.judging
        self.form: JudgeFormat = form

    @classmethod
    def load(cls, config: ModelConfig, *, judging: Judging | None = None, seed: int = 0) -> "PairwiseJudge":
        """A local model; errors as of `open_writer`."""
        from assay_serving.generative.pair_ranker import open_writer

        writer, spec = open_writer(config, judging=judging)
        return cls(writer, spec, seed=seed)

    @property
    def info(self) -> ModelInfo:
        return self.writer.info

    def compare(
        self, pairs: Sequence[PairQuestion], *, swapped_too: bool = True, on_progress: Advance = silent
    ) -> list[PairOutcome | ScoreFailure]:
        """One outcome per pair, in order. `swapped_too`: ask both orders (twice the calls), else the pair's own.

        A pair whose question fails in any order (too long, memory, network) is a ScoreFailure; answers without a
        verdict are not: they are in the outcome. `on_progress` counts questions, `len(orders)` a pair.
        """
        orders = ORDERS if swapped_too else ORDERS[:1]
        questions = [self._ask(pair, order) for pair in pairs for order in orders]
        samples = self.writer.answer(
            [prompt for prompt, _ in questions], self.form, self.judging, seed=self.seed, on_progress=on_progress
        )
        results: list[PairOutcome | ScoreFailure] = []
        for start in range(0, len(samples), len(orders)):
            parts = samples[start : start + len(orders)]
            truncated = any(cut for _, cut in questions[start : start + len(orders)])
            failed = next((part for part in parts if isinstance(part, ScoreFailure)), None)
            if failed is not None:
                results.append(failed)
                continue
            answers = [part for part in parts if not isinstance(part, ScoreFailure)]
            results.append(pair_outcome(answers, orders, truncated=truncated))
        return results

    def _ask(self, pair: PairQuestion, order: Sequence[int]) -> tuple[Prompt, bool]:
        sides = (pair.first, pair.second)
        responses = tuple(sides[side] for side in order)
        return fit_question(self.writer, self.form, self.judging, pair.prompt, responses, pair.principle)


def pair_outcome(
    answers: Sequence[Sequence[JudgeSample]], orders: Sequence[Sequence[int]] = ORDERS, *, truncated: bool = False
) -> PairOutcome:
    outcomes = tuple(_outcome(part, (order[0], order[1])) for part, order in zip(answers, orders, strict=True))
    samples = [p for outcome in outcomes for p in _probabilities(outcome.answers, outcome.order)]
    probabilities = [outcome.probability for outcome in outcomes if outcome.probability is not None]
    if len(probabilities) == 2:
        # In terms of the first shown: P(A) when A was shown first, 1 - P(A) when B was.
        combined: float | None = both_orders(probabilities[0], 1.0 - probabilities[1])
    else:
        combined = probabilities[0] if probabilities else None
    return PairOutcome(outcomes, combined, statistics.stdev(samples) if len(samples) > 1 else None, truncated)


def unswap(label: str | None, order: Sequence[int]) -> Decision:
    """The pair's own label for a judge's label in the order that it was shown."""
    if label is None or label == "tie":
        return None if label is None else "tie"
    return "A" if order["AB".index(label)] == 0 else "B"


def _outcome(answers: Sequence[JudgeSample], order: tuple[int, int]) -> OrderOutcome:
    votes = [unswap(answer.label, order) for answer in answers]
    read = [vote for vote in votes if vote is not None]
    probabilities = _probabilities(answers, order)
    decision: Decision = None
    agreement = None
    if read:
        counts: Tally[Literal["A", "B", "tie"]] = tally(read, threshold=PLURALITY)
        decision, agreement = counts.winner or "tie", counts.share
    probability = statistics.fmean(probabilities) if probabilities else None
    return OrderOutcome(order, tuple(answers), decision, probability, agreement)


def _probabilities(answers: Sequence[JudgeSample], order: Sequence[int]) -> list[float]:
    """P(A) by each readable sample, in the pair's own labels."""
    probabilities = []
    for answer in answers:
        if (odds := answer.log_odds("A", "B")) is not None:
            shown_first = sigmoid(odds)
            probabilities.append(unpermute((shown_first, 1.0 - shown_first), order)[0])
    return probabilities
