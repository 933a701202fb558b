"""Evaluation of a reward model on preference pairs: through the serving engine, in float32, failures counted.

Covers: accuracy with intervals, baselines, margins, calibration, slices (`slices.py`), truncated share, one record a
pair. Leaves out: benchmarks with their own protocols, fitting a calibration (`calibration/measures.py`).

A pair with a side that could not be scored is left out of the accuracy, and counted; `accuracy_failures_wrong` is the
accuracy if those pairs counted as wrong.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from assay import ids
from assay.domain import PreferencePair, response_text
from assay.errors import BadInputError
from assay.models.spec import Calibration
from assay.runs.coverage import Coverage
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreResult, margin_deviation
from assay.statistics.intervals import interval_text
from assay_rm_training.calibration.measures import CalibrationReport, calibration_report
from assay_rm_training.calibration.uncertainty import UncertaintyReport, measure_uncertainty
from assay_rm_training.data.encoded_dataset import tags_of
from assay_rm_training.evaluation.metrics import (
    Accuracy,
    Slice,
    length_baseline,
    length_correlation,
    majority_baseline,
    pair_accuracy,
    slices,
)
from assay_rm_training.evaluation.report import EvaluationReport
from assay_serving.scorer import ScoreItem, Scorer


@dataclass(frozen=True)
class ScoredPair:
    """One pair's outcome: both rewards, or the codes of what failed.

    `uncertainty`: deviation of the margin where the model gives each reward one (`margin_deviation`).
    """

    comparison_id: str
    prompt_id: str
    source: str
    category: str
    chosen: float | None
    rejected: float | None
    truncated: bool
    failure: str | None
    uncertainty: float | None = None

    @property
    def margin(self) -> float | None:
        return None if self.chosen is None or self.rejected is None else self.chosen - self.rejected


@dataclass(frozen=True)
class PairEvaluation(EvaluationReport):
    """Result of one evaluation. Margins are chosen - rejected, in the model's units.

    `length_baseline`, `reward_length_correlation`: length in characters, independent of the tokenizer (`length_bias/`
    counts tokens).
    """

    pairs: int
    scored: int
    failures: dict[str, int]
    accuracy: Accuracy
    accuracy_failures_wrong: float
    length_baseline: float
    majority_baseline: float
    reward_length_correlation: float | None
    margin_mean: float
    margin_std: float
    calibration: CalibrationReport
    calibrated: CalibrationReport | None  #: with the model's calibration, where it has one
    truncated_share: float
    slices: tuple[Slice, ...]
    uncertainty: UncertaintyReport | None  #: of a model whose scores have one
    seed: int
    items: tuple[ScoredPair, ...] = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """With the verdict on the uncertainty."""
        return super().to_dict() | {"uncertainty": self.uncertainty.to_dict() if self.uncertainty is not None else None}

    @property
    def coverage(self) -> Coverage:
        return Coverage(self.pairs, self.scored, "pairs", self.failures, sum(item.truncated for item in self._scored))

    @property
    def _scored(self) -> list[ScoredPair]:
        return [item for item in self.items if item.failure is None]

    def item_records(self) -> Iterator[dict[str, Any]]:
        return ({**asdict(item), "margin": item.margin} for item in self.items)

    def card_rows(self) -> list[tuple[str, str]]:
        accuracy = self.accuracy
        return [
            ("accuracy", f"{accuracy.value:.4f} (95 % by prompt: {interval_text(accuracy.interval)})"),
            *self.warning_rows(),
            ("pairs", f"{self.scored} scored of {self.pairs}, {accuracy.ties} ties"),
            ("choosing the longer response (characters)", f"{self.length_baseline:.4f}"),
            ("mean margin", f"{self.margin_mean:.4f}"),
            ("expected calibration error", f"{self.calibration.ece:.4f} (uncalibrated)"),
            ("truncated", f"{self.truncated_share:.4f} of the scored pairs"),
            *(self.uncertainty.rows() if self.uncertainty is not None else ()),
        ]

    def rewards(self) -> tuple[list[float], list[float]]:
        """Rewards of the chosen and of the rejected sides of the scored pairs."""
        scored = [(i.chosen, i.rejected) for i in self.items if i.chosen is not None and i.rejected is not None]
        return [c for c, _ in scored], [r for _, r in scored]


def evaluate(
    scorer: Scorer,
    pairs: Sequence[PreferencePair],
    *,
    seed: int = 0,
    calibration: Calibration | None = None,
    advance: Advance = silent,
) -> PairEvaluation:
    """Score both sides of every pair and report. `advance` counts responses (two a pair).

    Raises BadInputError for no pairs, or where not one pair could be scored.
    """
    if not pairs:
        raise BadInputError("there are no pairs to evaluate on")
    responses = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
    scores = scorer.score(responses, advance)
    items = tuple(
        _scored(pair, chosen, rejected) for pair, chosen, rejected in zip(pairs, scores[::2], scores[1::2], strict=True)
    )
    failures = Counter(item.failure for item in items if item.failure is not None)
    scored_rows = [(pair, item) for pair, item in zip(pairs, items, strict=True) if item.failure is None]
    if not scored_rows:
        raise BadInputError(f"none of the {len(pairs)} pairs could be scored: {dict(failures)}")
    scored_pairs = [pair for pair, _ in scored_rows]
    chosen = np.array([item.chosen for _, item in scored_rows], dtype=float)
    rejected = np.array([item.rejected for _, item in scored_rows], dtype=float)
    prompts = [item.prompt_id for _, item in scored_rows]
    accuracy = pair_accuracy(chosen, rejected, prompts, seed=seed)
    lengths = [len(response_text(p.chosen)) for p in scored_pairs]
    lengths += [len(response_text(p.rejected)) for p in scored_pairs]
    d = chosen - rejected
    return PairEvaluation(
        model=scorer.info,
        pairs=len(pairs),
        scored=len(scored_rows),
        failures=dict(failures),
        accuracy=accuracy,
        accuracy_failures_wrong=accuracy.value * len(scored_rows) / len(pairs),
        length_baseline=length_baseline(scored_pairs),
        majority_baseline=majority_baseline(scored_pairs),
        reward_length_correlation=length_correlation([*chosen, *rejected], lengths),
        margin_mean=float(d.mean()),
        margin_std=float(d.std()),
        calibration=calibration_report(d, seed=seed, groups=prompts),
        calibrated=calibration_report(d, calibration=calibration, seed=seed, groups=prompts) if calibration else None,
        truncated_share=sum(item.truncated for _, item in scored_rows) / len(scored_rows),
        slices=slices([tags_of(pair) for pair in scored_pairs], d),
        uncertainty=_uncertainty([item for _, item in scored_rows]),
        seed=seed,
        items=items,
    )


def _scored(pair: PreferencePair, chosen: ScoreResult, rejected: ScoreResult) -> ScoredPair:
    codes = [
        f"{side} {result.code}"
        for side, result in (("chosen", chosen), ("rejected", rejected))
        if not isinstance(result, Score)
    ]
    both = [result for result in (chosen, rejected) if isinstance(result, Score)]
    return ScoredPair(
        comparison_id=pair.comparison_id,
        prompt_id=ids.prompt_id(pair.prompt),
        source=pair.source,
        category=pair.category,
        chosen=chosen.reward if isinstance(chosen, Score) else None,
        rejected=rejected.reward if isinstance(rejected, Score) else None,
        truncated=any(result.truncated for result in both),
        failure=", ".join(codes) or None,
        uncertainty=margin_deviation(*both) if len(both) == 2 else None,
    )


def _uncertainty(scored: Sequence[ScoredPair]) -> UncertaintyReport | None:
    """None where a pair's uncertainty is not known, and for few pairs."""
    rows = [
        (i.margin, i.uncertainty, i.prompt_id) for i in scored if i.margin is not None and i.uncertainty is not None
    ]
    return measure_uncertainty(*zip(*rows, strict=True)) if len(rows) == len(scored) else None
