"""The attacked model: what it makes of a response beside the good one of its pair.

Covers: models that reward single responses, whatever scores them, and pairwise judges. Leaves out: opening them, the
rates (`rates`).
"""

import statistics
from collections.abc import Iterable, Sequence

from assay.domain import PreferencePair, Response
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_rm_training.attacks.attack import AttackedResponse, AttackVerdict
from assay_serving.generative.pairwise import PairOutcome, PairQuestion, PairwiseJudge
from assay_serving.scorer import TAKES_NO_PRINCIPLE, ModelInfo, ScoreItem, Scorer

UNREAD = "no_verdict"  #: a failure: none of the judge's answers could be read


class RewardTarget:
    """A model that gives rewards. An attacked response is accepted where its calibrated probability is above 1/2; of a
    model without calibration where its reward is above `threshold`, the median reward of the good responses.

    Each good response is scored once, all of them before the first judgement. Raises BadInputError where none could be.
    """

    def __init__(
        self,
        scorer: Scorer,
        pairs: Sequence[PreferencePair],
        *,
        principle: str | None = None,
        on_progress: Advance = silent,
    ) -> None:
        if principle is not None and scorer.info.kind in TAKES_NO_PRINCIPLE:
            kind = scorer.info.kind
            raise BadInputError(
                f"{scorer.info.name} is a reward model of kind {kind}, takes no principle", field="principle"
            )
        self._scorer, self._principle, self._on_progress = scorer, principle, on_progress
        self._pairs = pairs
        self._good = self._scores((pair, pair.chosen) for pair in pairs)
        rewards = [score.reward for score in self._good if isinstance(score, Score)]
        if not rewards:
            failures = sorted({score.code for score in self._good if isinstance(score, ScoreFailure)})
            raise BadInputError(f"none of the {len(pairs)} good responses could be scored: {', '.join(failures)}")
        self.threshold = None if scorer.info.calibrated else statistics.median(rewards)

    @property
    def info(self) -> ModelInfo:
        return self._scorer.info

    def judge(self, attacked: Sequence[AttackedResponse]) -> list[AttackVerdict | ScoreFailure]:
        scores = self._scores((self._pairs[one.row], one.response) for one in attacked)
        return [self._verdict(score, self._good[one.row]) for score, one in zip(scores, attacked, strict=True)]

    def _scores(self, items: Iterable[tuple[PreferencePair, Response]]) -> list[ScoreResult]:
        listed = [ScoreItem(pair.prompt, response, self._principle) for pair, response in items]
        return self._scorer.score(listed, self._on_progress)

    def _verdict(self, score: ScoreResult, good: ScoreResult) -> AttackVerdict | ScoreFailure:
        if isinstance(score, ScoreFailure):
            return score
        if isinstance(good, ScoreFailure):
            return good
        if self.threshold is not None:
            accepted: bool | None = score.reward > self.threshold
        else:
            accepted = None if score.probability is None else score.probability > 0.5
        return AttackVerdict(score.reward - good.reward, score.reward, accepted, score.truncated or good.truncated)


class JudgeTarget:
    """A pairwise judge, asked in both orders."""

    threshold = None

    def __init__(
        self,
        judge: PairwiseJudge,
        pairs: Sequence[PreferencePair],
        *,
        principle: str | None = None,
        on_progress: Advance = silent,
    ) -> None:
        self._judge, self._pairs, self._principle, self._on_progress = judge, pairs, principle, on_progress

    @property
    def info(self) -> ModelInfo:
        return self._judge.info

    def judge(self, attacked: Sequence[AttackedResponse]) -> list[AttackVerdict | ScoreFailure]:
        questions = [
            PairQuestion(self._pairs[one.row].prompt, one.response, self._pairs[one.row].chosen, self._principle)
            for one in attacked
        ]
        return [_of_judge(outcome) for outcome in self._judge.compare(questions, on_progress=self._on_progress)]


def _of_judge(outcome: PairOutcome | ScoreFailure) -> AttackVerdict | ScoreFailure:
    """The attacked response is the question's first."""
    if isinstance(outcome, ScoreFailure):
        return outcome
    if outcome.decision is None:
        return ScoreFailure(UNREAD, "no answer of the judge has a verdict that can be read")
    margin = float((outcome.decision == "A") - (outcome.decision == "B"))
    if outcome.probability is not None:
        margin = outcome.probability - 0.5
    return AttackVerdict(margin, truncated=outcome.truncated)
