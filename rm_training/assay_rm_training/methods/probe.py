"""A linear probe: a Bradley-Terry reward model whose backbone is frozen and whose head is the exact optimum.

Covers: the convex fit (Newton's method on the weighted, label-smoothed Bradley-Terry loss with an L2 penalty), the
choice of the penalty on gold pairs or by cross-validation, scoring from cached features, and folding the head into a
stock checkpoint. Leaves out: training of the backbone (`training/loop.py`).

Less accurate than full training on much data, but it costs one forward pass per response, once, and milliseconds per
fit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.linalg import LinearOperator, cg

from assay import ids
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.heads import HEAD
from assay.models.spec import Calibration, RewardModelSpec
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay_rm_training.calibration.measures import sigmoid
from assay_rm_training.data.response_groups import is_empty
from assay_rm_training.methods.hidden_states import FeatureCache
from assay_rm_training.model.trainable_model import TrainableModel
from assay_serving.scorer import ModelInfo, ScoreItem

Floats = npt.NDArray[np.float64]
L2_PATH = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
STEPS, TOLERANCE = 100, 1e-8


@dataclass(frozen=True)
class ProbeConfig:
    """`l2`: the penalties tried, for features of deviation 1. `folds`: of the cross-validation that selects one where
    there are no gold pairs; a prompt's pairs stay in one fold. `label_smoothing`: the share of labels believed to be
    flipped, [0, 0.5)."""

    l2: tuple[float, ...] = L2_PATH
    folds: int = 4
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if not self.l2 or min(self.l2) <= 0:
            raise BadInputError("penalties must be positive: the unpenalised optimum may be infinite", field="l2")
        if self.folds < 2:
            raise BadInputError(f"must be at least 2, not {self.folds}", field="folds")
        if not 0 <= self.label_smoothing < 0.5:
            raise BadInputError(f"goes from 0 to below 0.5, not {self.label_smoothing}", field="label_smoothing")


@dataclass(frozen=True)
class Probe:
    """`head`: [H], reward = head . features. `candidates`: penalty -> (accuracy, NLL) on `chosen_on`: gold pairs, or
    the training pairs by cross-validation. `pairs`: trained on; `left_out`: pairs with a side that has no features."""

    head: npt.NDArray[np.float32]
    l2: float
    pairs: int
    left_out: int
    candidates: dict[float, tuple[float, float]]
    chosen_on: str = "gold"


def fit_head(
    differences: Floats,
    weights: Floats,
    *,
    l2: float,
    label_smoothing: float | Floats = 0.0,
    start: Floats | None = None,
    towards: Floats | float = 0.0,
) -> Floats:
    """The w [H] that minimises sum_i v_i loss(w . d_i) / sum_i v_i + l2/2 |w - towards|^2 over d = chosen - rejected
    [N, H].

    loss(z) = -(1-e) log s(z) - e log s(-z), with one e, or one for each pair [N]. Strictly convex: Newton steps, halved
    until the objective falls, each solved by conjugate gradients, which need no H x H matrix. `start`: initial value;
    does not change the optimum.
    """
    v = weights / weights.sum()
    w = np.zeros(differences.shape[1]) if start is None else start

    def objective(w: Floats) -> float:
        z = differences @ w
        return float(v @ (np.logaddexp(0.0, -z) + label_smoothing * z) + 0.5 * l2 * (w - towards) @ (w - towards))

    value = objective(w)
    for _ in range(STEPS):
        p = sigmoid(differences @ w)
        gradient = differences.T @ (v * (p - (1.0 - label_smoothing))) + l2 * (w - towards)
        if float(np.abs(gradient).max()) < TOLERANCE:
            break
        step = _newton_step(differences, v * p * (1 - p), l2, gradient)
        size = 1.0
        while (smaller := objective(w - size * step)) > value and size > 1e-6:
            size /= 2
        if smaller >= value:
            break
        w, value = w - size * step, smaller
    return w


def _newton_step(differences: Floats, curvature: Floats, l2: float, gradient: Floats) -> Floats:
    """x of (D^T diag(curvature) D + l2) x = gradient, more exact near the optimum."""
    size = len(gradient)
    image = LinearOperator((size, size), lambda x: differences.T @ (curvature * (differences @ x)) + l2 * x)
    step: Floats = cg(image, gradient, rtol=min(0.1, float(np.linalg.norm(gradient))), maxiter=10 * size)[0]
    return step


def train_probe(
    cache: FeatureCache,
    pairs: Sequence[PreferencePair],
    config: ProbeConfig,
    *,
    gold: Sequence[PreferencePair] = (),
    advance: Advance = silent,
) -> Probe:
    """Fit one head per penalty and keep the one with the best likelihood on `gold`, or by cross-validation without
    gold.

    Raises BadInputError where not one pair has features on both sides.
    """
    chosen, rejected, used = sides(cache, pairs, advance)
    if not len(used):
        raise BadInputError("no pair to train on: none has both sides within the model's length")
    d = (chosen - rejected).astype(np.float64)
    scale = np.concatenate([chosen, rejected]).astype(np.float64).std(axis=0) + 1e-6
    d /= scale
    weights = np.array([pairs[i].weight for i in used], dtype=np.float64)
    if not weights.sum() > 0:
        raise BadInputError("no pair to train on: every weight is 0")
    smoothing = wrong_labels([pairs[i] for i in used], config.label_smoothing)
    gold_chosen, gold_rejected, some = sides(cache, gold, advance)
    candidates: dict[float, tuple[float, float]] = {}
    if len(some):
        head = None
        for l2 in sorted(config.l2, reverse=True):  # each starts from the one before
            head = fit_head(d, weights, l2=l2, label_smoothing=smoothing, start=head)
            z = ((gold_chosen - gold_rejected) / scale) @ head
            candidates[l2] = (float((z > 0).mean()), float(np.logaddexp(0.0, -z).mean()))
    elif len(config.l2) > 1:
        prompts = [int(ids.prompt_id(pairs[i].prompt)[-8:], 16) for i in used]
        candidates = cross_validated(d, weights, smoothing, np.array(prompts) % config.folds, config.l2)
    best = min(candidates, key=lambda l2: (candidates[l2][1], -l2)) if candidates else config.l2[0]
    head = fit_head(d, weights, l2=best, label_smoothing=smoothing) / scale
    return Probe(
        head.astype(np.float32),
        best,
        len(used),
        len(pairs) - len(used),
        candidates,
        "gold" if len(some) else f"{config.folds}-fold cross-validation",
    )


def wrong_labels(pairs: Sequence[PreferencePair], believed: float) -> Floats:
    """P(the label is wrong) [N]: of a pair's own soft label, flipped with the share `believed` beside."""
    wrong = 1.0 - np.array([pair.preference for pair in pairs], dtype=np.float64)
    return believed + (1.0 - 2.0 * believed) * wrong


def cross_validated(
    d: Floats, weights: Floats, smoothing: Floats, folds: npt.NDArray[np.int64], l2_path: Sequence[float]
) -> dict[float, tuple[float, float]]:
    """Penalty -> (accuracy, NLL) on pairs whose fold [N] was left out of the fit; empty where there is one fold
    only."""
    used = sorted(set(folds.tolist()))
    if len(used) < 2:
        return {}
    penalties = sorted(l2_path, reverse=True)
    z = {l2: np.empty(len(d)) for l2 in penalties}
    for fold in used:
        out = folds == fold
        head = None
        for l2 in penalties:
            head = fit_head(d[~out], weights[~out], l2=l2, label_smoothing=smoothing[~out], start=head)
            z[l2][out] = d[out] @ head
    total = weights.sum()
    return {
        l2: (float((q > 0).mean()), float(weights @ (np.logaddexp(0.0, -q) + smoothing * q) / total))
        for l2, q in z.items()
    }


class ProbeScorer:
    """A `Scorer` by a probe over cached features, equal to the saved checkpoint to float32 rounding."""

    def __init__(
        self, cache: FeatureCache, probe: Probe, *, name: str, version: str, calibration: Calibration | None = None
    ) -> None:
        self._cache, self._probe, self._calibration = cache, probe, calibration
        renderer, model = cache.backbone.renderer, cache.backbone.trainable.model
        self._info = ModelInfo(
            name=name,
            version=version,
            kind="scalar",
            template_hash=renderer.template_hash,
            max_length=renderer.max_length,
            calibrated=calibration is not None,
            parity="unchecked",
            dtype="float32",
            device=str(model.device),
            calibration=calibration.id if calibration is not None else None,
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        results: list[ScoreResult] = []
        for features in self._cache.of(items, on_progress):
            if isinstance(features, ScoreFailure):
                results.append(features)
                continue
            reward = float(features.vector @ self._probe.head)
            if not math.isfinite(reward):
                results.append(ScoreFailure("non_finite", f"the model answered {reward}", self._info.name))
                continue
            probability = self._calibration.probability(reward) if self._calibration else None
            info = self._info
            results.append(
                Score(
                    reward=reward,
                    model=info.name,
                    version=info.version,
                    template_hash=info.template_hash,
                    tokens=features.tokens,
                    truncated=features.truncated,
                    probability=probability,
                    calibration=info.calibration,
                )
            )
        return results


def with_head(trainable: TrainableModel, probe: Probe) -> TrainableModel:
    """The stock classifier with the probe as its head, ready for `checkpoint.save_checkpoint`; changes it in place."""
    head = getattr(trainable.model, HEAD)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(probe.head)[None, :])
        if head.bias is not None:
            head.bias.zero_()
    return trainable


def probe_spec(cache: FeatureCache, *, snapshot: str | None, run_id: str | None) -> RewardModelSpec:
    backbone = cache.backbone
    return RewardModelSpec(
        kind="scalar",
        base=backbone.base,
        template_hash=backbone.renderer.template_hash,
        trained_length=backbone.renderer.max_length,
        version="unsaved",
        snapshot=snapshot,
        run_id=run_id,
    )


def sides(
    cache: FeatureCache, pairs: Sequence[PreferencePair], advance: Advance
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], list[int]]:
    """Features of chosen [n, H] and rejected [n, H], and the indices of their pairs, without those of an empty side."""
    items = [ScoreItem(pair.prompt, text) for pair in pairs for text in (pair.chosen, pair.rejected)]
    features = cache.of(items, advance)
    used, chosen, rejected = [], [], []
    for index, pair in enumerate(pairs):
        c, r = features[2 * index], features[2 * index + 1]
        if is_empty(pair.chosen) or is_empty(pair.rejected):
            continue
        if not isinstance(c, ScoreFailure) and not isinstance(r, ScoreFailure):
            used.append(index)
            chosen.append(c.vector)
            rejected.append(r.vector)
    width = cache.backbone.width
    empty = np.zeros((0, width), dtype=np.float32)
    return (np.stack(chosen) if used else empty), (np.stack(rejected) if used else empty), used
