"""Several linear heads on one frozen backbone as one model: one pass of the backbone for the rewards of all of them.

Covers: its folder (`heads.yaml`, `heads.safetensors`), scoring with it. Leaves out: fitting
(`assay_rm_training.methods.head_ensemble`), ensembles of whole models (`ensemble`).

The folder is small: it names its backbone, with the version that the heads were fitted on, and another version is
refused, whose hidden states are not what the heads read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from annotated_types import Ge

from assay.errors import BadInputError
from assay.models.calibration import Calibration
from assay.models.chat.renderer import Renderer
from assay.models.contamination import BenchmarkUse, union
from assay.models.devices import pick_device, pick_dtype
from assay.models.heads import HEAD
from assay.models.loading import context_length
from assay.models.spec import RatingHeads, RewardModelSpec, rating_heads
from assay.runs.progress_bar import Advance, silent
from assay.score import MEMBER, Score, ScoreFailure, ScorePart, ScoreResult
from assay.settings import CheckedSettings
from assay_serving.engines.aggregation import MemberAggregation
from assay_serving.engines.ensemble import description_of, digest, write_description
from assay_serving.engines.frozen_backbone import FeatureReader, Vector, backbone_version, load_backbone
from assay_serving.engines.heads import Floats, Heads, Posterior
from assay_serving.engines.packed import for_scoring
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    from assay_serving.engines.engine import ModelLoader

FILE, WEIGHTS = "heads.yaml", "heads.safetensors"
KIND = "head_ensemble"


@dataclass(frozen=True)
class HeadEnsembleSpec(CheckedSettings):
    """`backbone`: what the model is called, or its folder relative to this one. `max_length`: tokens. `members` k,
    `width` H: of the heads. `ratings`: of heads that have an output for each, of K names; their reward is the mean
    of the ratings in their own units. `spread`: factor that the heads' deviations were scaled by, fitted on the pairs
    `spread_on`; `uncertainty`: JSON-ready, what was measured there. `method`, `l2`, `pairs`: how they were fitted."""

    backbone: str
    backbone_version: str
    template_hash: str
    max_length: Annotated[int, Ge(1)]
    members: Annotated[int, Ge(2)]
    width: Annotated[int, Ge(1)]
    method: str
    l2: float
    pairs: int
    weights: str  #: digest of the file of heads
    aggregation: MemberAggregation = field(default_factory=MemberAggregation)
    spread: float = 1.0
    spread_on: str | None = None
    ratings: RatingHeads | None = None
    uncertainty: dict[str, Any] | None = None
    calibration: Calibration | None = None
    contamination: tuple[BenchmarkUse, ...] = ()
    snapshot: str | None = None
    run_id: str | None = None

    @classmethod
    def read(cls, folder: Path) -> HeadEnsembleSpec:
        """Of the folder, or of its heads.yaml. Raises BadInputError naming the file for anything else."""
        path = folder / FILE if folder.is_dir() else folder
        with description_of(path, KIND, "an ensemble of heads") as payload:
            aggregation = MemberAggregation(**payload.pop("aggregation", {}))
            ratings = payload.pop("ratings", None)
            return cls(aggregation=aggregation, ratings=rating_heads(ratings) if ratings else None, **payload)

    def write(self, folder: Path) -> Path:
        """Write the description, whole or not at all; returns its file."""
        path = folder / FILE if folder.is_dir() else folder
        write_description(path, KIND, asdict(self))
        return path

    @property
    def version(self) -> str:
        """Identity of all that a reward depends on."""
        parts = (self.weights, self.backbone_version, self.template_hash, self.max_length, asdict(self.aggregation))
        return digest(parts if self.ratings is None else (*parts, asdict(self.ratings)))

    @property
    def outputs(self) -> int:
        """Rows of the file of heads."""
        return self.members * (len(self.ratings.names) if self.ratings else 1)

    def calibrated(self, calibration: Calibration) -> HeadEnsembleSpec:
        return replace(self, calibration=calibration)

    def contaminated(self, uses: Iterable[BenchmarkUse]) -> HeadEnsembleSpec:
        return replace(self, contamination=union(self.contamination, uses))


def write_heads(folder: Path, heads: Heads) -> str:
    """Write the file of heads, in float32, into a folder that has no other weights; returns its digest."""
    from safetensors.numpy import save

    tensors = {"heads": heads.heads, "centre": heads.centre, "mean": heads.mean, "factor": heads.posterior.factor}
    packed = save({name: np.ascontiguousarray(value, dtype=np.float32) for name, value in tensors.items()})
    (folder / WEIGHTS).write_bytes(packed)
    return _digest(packed)


def read_heads(folder: Path, spec: HeadEnsembleSpec) -> Heads:
    """Raises BadInputError for a file that is not the one of this description, and for numbers that are not finite."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / WEIGHTS
    try:
        packed = path.read_bytes()
        stored = {name: value.astype(np.float64) for name, value in load(packed).items()}
        heads = Heads(stored["heads"], stored["centre"], Posterior(stored["mean"], stored["factor"]))
    except (OSError, SafetensorError, KeyError) as error:
        raise BadInputError(f"no heads: {error}", file=path) from error
    if heads.heads.shape != (spec.outputs, spec.width) or heads.centre.shape != (spec.width,):
        raise BadInputError(f"heads are {heads.heads.shape}, {FILE} says {(spec.outputs, spec.width)}", file=path)
    if not all(bool(np.isfinite(value).all()) for value in stored.values()):
        raise BadInputError("heads are not finite", file=path)
    if _digest(packed) != spec.weights:
        raise BadInputError(f"is not the file that {FILE} describes", file=path)
    return heads


class HeadEnsembleScorer(FeatureReader):
    """Scores with the heads' combined reward; their spread is its uncertainty, their rewards are its parts."""

    aggregation: MemberAggregation
    heads: Heads
    ratings: RatingHeads | None = None

    @classmethod
    def load(cls, config: ModelConfig, loader: ModelLoader) -> HeadEnsembleScorer:
        """From a folder or its heads.yaml. Raises BadInputError for another version of the backbone, BackendError for
        another chat template than the heads were fitted with, and what loading the backbone raises."""
        path = Path(config.reference).expanduser()
        folder = path if path.is_dir() else path.parent
        spec = HeadEnsembleSpec.read(path)
        beside = (folder / spec.backbone).resolve()
        base = str(beside) if beside.exists() else loader.locate(spec.backbone)
        if (version := backbone_version(base)) != spec.backbone_version:
            raise BadInputError(
                f"{config.name}: its heads were fitted on {spec.backbone} of version {spec.backbone_version}, which is "
                f"now {version}; fit them again with: assay train probe --members {spec.members}"
            )
        heads = read_heads(folder, spec)
        device = pick_device(config.device)
        model, tokenizer = load_backbone(base, dtype=pick_dtype(device, config.dtype), device=device)
        if (width := getattr(model, HEAD).in_features) != spec.width:
            raise BadInputError(f"{config.name}: its heads read {spec.width} numbers, {spec.backbone} gives {width}")
        described = RewardModelSpec(
            "scalar",
            spec.backbone,
            spec.template_hash,
            spec.max_length,
            spec.version,
            calibration=spec.calibration,
            contamination=spec.contamination,
            ranked=spec.aggregation.combine == "mean" and spec.ratings is None,
        )
        length = config.length(spec.max_length, context_length(model.config))
        renderer = Renderer(tokenizer, max_length=length)
        scorer = cls(for_scoring(model), renderer, described, name=config.name, token_budget=config.token_budget)
        scorer.aggregation, scorer.heads, scorer.ratings = spec.aggregation, heads, spec.ratings
        return scorer

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`. `uncertainty`: deviation over the members."""
        results: list[ScoreResult] = []
        for features in self.features(items, on_progress):
            if isinstance(features, ScoreFailure):
                results.append(features)
                continue
            rewards, parts = self._rewards(features.vector)
            reward = float(self.aggregation.combined(rewards)[0])
            results.append(
                Score(
                    reward=reward,
                    model=self._info.name,
                    version=self._info.version,
                    template_hash=self._info.template_hash,
                    tokens=features.tokens,
                    truncated=features.truncated,
                    probability=self.probability(reward),
                    uncertainty=float(self.aggregation.spread(rewards)[0]),
                    calibration=self._info.calibration,
                    parts=parts,
                )
            )
        return results

    def _rewards(self, vector: Vector) -> tuple[Floats, tuple[ScorePart, ...]]:
        """Of the members [1, k], and the score's parts: the members' rewards, or what they say of each rating."""
        outputs = self.heads.rewards(vector[None])
        if self.ratings is None:
            return outputs, tuple(ScorePart(f"{MEMBER}{j}", v, v) for j, v in enumerate(outputs[0].tolist()))
        by_rating = outputs.reshape(-1, len(self.ratings.names)) + np.array(self.ratings.offsets)
        means, spreads = self.aggregation.combined(by_rating.T), self.aggregation.spread(by_rating.T)
        parts = (
            ScorePart(name, float(mean), float(mean), uncertainty=float(spread))
            for name, mean, spread in zip(self.ratings.names, means, spreads, strict=True)
        )
        return np.array([[self.ratings.aggregation(row) for row in by_rating.tolist()]]), tuple(parts)


def _digest(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()[:16]
