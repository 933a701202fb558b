"""A scorer that subtracts a length correction of its spec from every reward; used only where one is selected by name.

Covers: any engine under a correction in characters, local engines also in tokens. Leaves out: the correction's function
(`assay.models.length_correction`), fitting it.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from assay.domain import response_text
from assay.errors import BadInputError
from assay.models.chat.renderer import Renderer
from assay.models.length_correction import EVERY, LengthCorrection
from assay.models.spec import RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_serving.scorer import ModelInfo, Repeatable, ScoreItem, Scorer


class LengthCorrectedScorer:
    """The version of its scores is "VERSION+CORRECTION": stored corrected scores never mix with raw ones.

    Their probability is of the correction's own calibration, None where it has none: the model's is of raw rewards.
    """

    def __init__(self, scorer: Scorer, correction: LengthCorrection, *, domain: str = EVERY) -> None:
        """Raises BadInputError for tokens of an engine that has no tokenizer here, and for an unknown domain."""
        if correction.form != "penalty" and domain not in correction.curves:
            domains = (
                ", ".join(sorted(filter(None, correction.curves))) or "none: it was fitted on all domains together"
            )
            raise BadInputError(f"{correction.name!r} has no domain {domain!r}; it has {domains}")
        self.scorer, self.correction, self.domain = scorer, correction, domain
        self._renderer: Renderer | None = getattr(scorer, "renderer", None)
        if correction.unit == "tokens" and self._renderer is None:
            raise BadInputError(f"{correction.name!r} counts tokens, and {scorer.info.name} has no tokenizer here")
        calibration = correction.calibration
        info = scorer.info
        suffix = f"+{correction.id}" + (f":{domain}" if domain else "")
        self._info = replace(
            info,
            version=info.version + suffix,
            calibrated=calibration is not None,
            calibration=calibration.id if calibration is not None else None,
            curve=calibration.curve if calibration is not None else None,
            bradley_terry=False,  # of the rewards as they were
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def score_identity(self) -> str | None:
        """See `Repeatable`: the model's own; the correction is in the version."""
        return self.scorer.score_identity if isinstance(self.scorer, Repeatable) else None

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        raw_scores = self.scorer.score(items, on_progress)
        return [self._result(item, score) for item, score in zip(items, raw_scores, strict=True)]

    def _result(self, item: ScoreItem, score: ScoreResult) -> ScoreResult:
        if not isinstance(score, Score):
            return score
        if item.rendered is not None:
            return ScoreFailure(
                "bad_input", "a rendered conversation does not say how long its response is", score.model
            )
        length = response_length(item, self.correction.unit, self._renderer)
        reward = self.correction.corrected(score.reward, length, self.domain)
        if not math.isfinite(reward):
            return ScoreFailure("non_finite", f"the corrected reward is {reward}", self._info.name)
        calibration = self.correction.calibration
        return replace(
            score,
            reward=reward,
            version=self._info.version,
            probability=calibration.probability(reward) if calibration is not None else None,
            calibration=self._info.calibration,
        )


def response_length(item: ScoreItem, unit: str, renderer: Renderer | None) -> int:
    """Length of the response alone: characters, or tokens of its text without the template's own."""
    if unit == "characters" or renderer is None:
        return len(response_text(item.response))
    return len(renderer.tokenizer(response_text(item.response), add_special_tokens=False, verbose=False).input_ids)


def with_correction(scorer: Scorer, spec: RewardModelSpec | None, correction: str) -> Scorer:
    """The scorer under the correction that `NAME` or `NAME:DOMAIN` names. Raises BadInputError for an unknown one."""
    name, _, domain = correction.partition(":")
    corrections = {c.name: c for c in spec.length_corrections} if spec is not None else {}
    if name not in corrections:
        available = ", ".join(corrections) or "it has none; fit one with: assay length-bias --fit linear --write NAME"
        raise BadInputError(f"{scorer.info.name} has no length correction {name!r}: {available}")
    return LengthCorrectedScorer(scorer, corrections[name], domain=domain)
