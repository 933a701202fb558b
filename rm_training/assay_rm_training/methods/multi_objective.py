"""Multi-objective regression on named ratings: one head per rating, folded into the stock head by an aggregation.

Covers: the method `ratings` and its task, standardising ratings, its evaluation. Leaves out: the loss and the
aggregations (`objectives/regression.py`), reading ratings (`assay_rm_training.data.response_labels`).

Every rating is standardised by the mean and deviation of the training rows, so that scales of 1-5 and 0-100 count
alike and no head needs a bias. The saved reward of a linear aggregation is the aggregate in the ratings' units minus
its value at the training means.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup
from assay.models.chat.renderer import Renderer
from assay.models.heads import HEAD
from assay.models.parallelism.strategy import SingleProcess
from assay.models.published_weights import full_tensor
from assay.models.spec import Kind, RatingHeads
from assay.runs.coverage import Coverage
from assay.runs.progress_bar import Advance, silent
from assay.score import Score
from assay.statistics.rank_correlation import Vector, pearson, spearman
from assay.workspace import Workspace
from assay_rm_training.benchmarks.figures.vote_figures import correlation_interval
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.response_groups import encode_responses, encode_rows
from assay_rm_training.data.response_labels import RatedResponse, load_ratings
from assay_rm_training.data.stored_dataset import with_items
from assay_rm_training.evaluation.report import EvaluationReport
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, tokens_of
from assay_rm_training.model.trainable_model import (
    TrainableModel,
    attach,
    auxiliary_module,
    detach_modules,
    load_trainable,
    new_linear,
    set_head,
)
from assay_rm_training.objectives.responses import Aggregation, fold, masked_mse
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.ratings import RatingsScorer
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.scorer import ScoreItem, Scorer

HEADS = "ratings"
Measure = Callable[[Vector, Vector], float]


class RatingScale(NamedTuple):
    """Mean and deviation of each rating over the training rows; a rating that never varies has deviation 1."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]


class EncodedRating(NamedTuple):
    """One conversation and its ratings [K], nan where missing; standardised where `scale` is not None."""

    group: TokenGroup
    values: tuple[float, ...]
    weight: float
    scale: RatingScale | None = None


class MultiObjectiveTask(GroupTask[EncodedRating]):
    """Squared errors of standardised ratings. Figure `explained`: a row's mean squared rating minus its error; with
    `variance` the share of the ratings' variance that is explained."""

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedRating]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        predicted = apply_heads(auxiliary_module(trainable, HEADS), hidden.last())
        target = torch.tensor([item.values for item in items], dtype=torch.float32, device=predicted.device)
        present = (~target.isnan()).float()
        losses = masked_mse(predicted, target, present)
        none = masked_mse(torch.zeros_like(predicted), target, present).sum()
        figures = {"variance": none, "explained": none - losses.detach().sum()}
        return BatchLoss(losses, figures, tokens_of(groups), hidden.computed, hidden.padding)


def apply_heads(heads: torch.nn.Linear, pooled: torch.Tensor) -> torch.Tensor:
    """Ratings [B, K] of hidden states [B, H], in float32 even inside autocast."""
    with torch.autocast(pooled.device.type, enabled=False):
        return torch.nn.functional.linear(pooled.float(), heads.weight.float())


@dataclass(frozen=True)
class RatingAgreement:
    """A correlation with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MultiObjectiveEvaluation(EvaluationReport):
    """Agreement of rewards with the aggregated ratings of held-out rows. `pearson`, `spearman`: None where either does
    not vary. `by_rating`: Spearman of the reward with each rating alone; `own`: of what the model says of each rating,
    where a score has it as a part."""

    rows: int
    scored: int
    failures: int
    pearson: RatingAgreement | None
    spearman: RatingAgreement | None
    by_rating: dict[str, RatingAgreement | None]
    own: dict[str, RatingAgreement | None] = field(default_factory=dict)
    items: tuple[dict[str, Any], ...] = field(default=(), repr=False)

    @property
    def coverage(self) -> Coverage:
        return Coverage(self.rows, self.scored, "rows", {"not scored": self.failures} if self.failures else {})

    def item_records(self) -> tuple[dict[str, Any], ...]:
        return self.items

    def card_rows(self) -> list[tuple[str, str]]:
        correlations = [
            ("correlation with the aggregated ratings", self.pearson),
            ("its rank correlation", self.spearman),
        ]
        correlations += [(f"rank correlation with {name}", value) for name, value in self.by_rating.items()]
        correlations += [(f"  of the model's own {name}", value) for name, value in self.own.items()]
        rows = [
            (
                name,
                "none: one of them does not vary"
                if a is None
                else f"{a.value:.4f} (95 %: {a.low:.4f} to {a.high:.4f})",
            )
            for name, a in correlations
        ]
        return [("rows", f"{self.scored} scored of {self.rows}"), *self.warning_rows(), *rows]


@dataclass(frozen=True)
class MultiObjective(MethodFields):
    """A stock sequence classifier of one label, from regression on the ratings `names` under `aggregation`.

    `missing`: the number that stands for "not rated". `separate`: keep one output per rating, so that scores have the
    ratings as parts; a nonlinear aggregation (min, gate), which does not fold into one head, always does. The spec then
    holds the aggregation.
    """

    name: ClassVar[str] = "ratings"
    kind: ClassVar[Kind] = "scalar"
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "multi-objective")
    unit: ClassVar[str] = "ratings"

    names: tuple[str, ...]
    aggregation: Aggregation = field(default_factory=Aggregation)
    missing: float | None = None
    separate: bool = False

    def __post_init__(self) -> None:
        if not self.names or len(set(self.names)) < len(self.names):
            raise BadInputError("name the ratings, each once", field="ratings")
        self.aggregation.check(len(self.names))

    @property
    def engine(self) -> type[TransformersScorer] | type[RatingsScorer]:
        return TransformersScorer if self._folds else RatingsScorer

    @property
    def _folds(self) -> bool:
        return self.aggregation.is_linear and not self.separate

    @classmethod
    def read_fields(cls, payload: Mapping[str, Any]) -> dict[str, Any]:
        weights_or_name = payload["aggregation"]
        aggregation = Aggregation(
            weights_or_name["kind"], tuple(weights_or_name["weights"]), tuple(weights_or_name["thresholds"])
        )
        return {**payload, "names": tuple(payload["names"]), "aggregation": aggregation}

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        trainable = load_trainable(config, device)
        return attach(trainable, HEADS, new_linear(trainable, len(self.names)))

    def read(self, workspace: Workspace | None, data: str) -> Collection[RatedResponse]:
        return load_ratings(data, missing=self.missing)

    def encode(
        self,
        rows: Collection[RatedResponse],
        renderer: Renderer,
        *,
        collect: Collect = list,
        advance: Advance = silent,
    ) -> EncodedDataset[EncodedRating]:
        return encode_rows(
            rows, lambda row: self._encode(row, renderer), unit="rated responses", collect=collect, advance=advance
        )

    def _encode(self, row: RatedResponse, renderer: Renderer) -> tuple[EncodedRating, bool] | str:
        values = tuple(row.ratings.get(name, float("nan")) for name in self.names)
        if all(value != value for value in values):
            return f"has none of the ratings {', '.join(self.names)}"
        encoded = encode_responses(renderer, row.prompt, [row.response])
        return (
            encoded
            if isinstance(encoded, str)
            else (EncodedRating(encoded.group, values, row.weight), encoded.truncated)
        )

    def prepare(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[EncodedRating],
        eval_data: EncodedDataset[EncodedRating] | None,
        parallel: SingleProcess | None = None,
    ) -> tuple[EncodedDataset[EncodedRating], EncodedDataset[EncodedRating] | None]:
        """Standardise both sets by the training rows. Raises BadInputError for a rating that no row has."""
        values = np.fromiter(chain.from_iterable(item.values for item in data.items), dtype=float)
        scale = scale_of(values.reshape(-1, len(self.names)), self.names)
        evaluated = None if eval_data is None else _standardised(eval_data, scale, parallel)
        return _standardised(data, scale, parallel), evaluated

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> MultiObjectiveTask:
        return MultiObjectiveTask(trainable, config)

    def finish(self, trainable: TrainableModel, data: EncodedDataset[EncodedRating]) -> dict[str, Any]:
        """Fold the heads into the model's head, or replace it by them where the ratings are kept."""
        scale = data.items[0].scale
        assert scale is not None  # set by `prepare`
        heads = full_tensor(auxiliary_module(trainable, HEADS).weight)
        detach_modules(trainable)
        if self._folds:
            weights = self.aggregation.linear_weights(len(self.names))
            set_head(trainable, fold(heads, weights, scale.deviations))
            return {"ranked": False}
        several = torch.nn.Linear(heads.shape[1], heads.shape[0], bias=False).to(heads.device)
        with torch.no_grad():
            several.weight.copy_(heads * heads.new_tensor(scale.deviations)[:, None])
        setattr(trainable.model, HEAD, several)
        trainable.model.config.num_labels = len(self.names)
        return {"ratings": RatingHeads(self.names, scale.means, self.aggregation), "ranked": False}

    def responses(self, rows: Collection[RatedResponse]) -> list[ScoreItem]:
        return [ScoreItem(row.prompt, row.response) for row in rows]

    def evaluate(
        self, scorer: Scorer, rows: Collection[RatedResponse], *, seed: int, advance: Advance = silent
    ) -> MultiObjectiveEvaluation:
        """Rewards against the aggregated ratings of rows that have all of them, and against each rating."""
        scores = scorer.score(self.responses(rows), advance)
        pairs = [(row, score) for row, score in zip(rows, scores, strict=True) if isinstance(score, Score)]
        scored = [(row, score.reward) for row, score in pairs]
        if not scored:
            raise BadInputError(f"none of the {len(rows)} rated responses could be scored")
        full = [(row, reward) for row, reward in scored if all(name in row.ratings for name in self.names)]
        aggregated = [self.aggregation([row.ratings[name] for name in self.names]) for row, _ in full]
        by_rating: dict[str, RatingAgreement | None] = {}
        own: dict[str, RatingAgreement | None] = {}
        for name in self.names:
            rated = [(row.ratings[name], reward) for row, reward in scored if name in row.ratings]
            by_rating[name] = agreement(spearman, [v for v, _ in rated], [r for _, r in rated], seed=seed)
            parts = [(row.ratings[name], part) for row, score in pairs if name in row.ratings for part in score.parts]
            said = [(rating, part.value) for rating, part in parts if part.name == name and part.value is not None]
            if said:
                own[name] = agreement(spearman, [v for v, _ in said], [p for _, p in said], seed=seed)
        rewards = [reward for _, reward in full]
        return MultiObjectiveEvaluation(
            scorer.info,
            len(rows),
            len(scored),
            len(rows) - len(scored),
            agreement(pearson, aggregated, rewards, seed=seed),
            agreement(spearman, aggregated, rewards, seed=seed),
            by_rating,
            own,
            tuple({"reward": reward, "ratings": dict(row.ratings)} for row, reward in scored),
        )

    def card_rows(self) -> list[tuple[str, str]]:
        how = self.aggregation
        weights = f" {', '.join(f'{w:g}' for w in how.weights)}" if how.weights else ""
        heads = "folded into one head" if self._folds else "one output per rating is kept"
        thresholds = f" above {', '.join(f'{t:g}' for t in how.thresholds)}" if how.thresholds else ""
        return [("ratings", ", ".join(self.names)), ("aggregation", f"{how.kind}{weights}{thresholds}, {heads}")]


def scale_of(values: npt.ArrayLike, names: Sequence[str]) -> RatingScale:
    """Scale of ratings [N, K], nan where missing. Raises BadInputError for a rating that no row has."""
    array = np.asarray(values, dtype=float)
    if absent := [name for name, seen in zip(names, (~np.isnan(array)).sum(0), strict=True) if not seen]:
        raise BadInputError(f"no row has the rating {absent[0]!r}", field="ratings")
    deviations = np.nanstd(array, axis=0)
    return RatingScale(
        tuple(np.nanmean(array, axis=0).tolist()), tuple(np.where(deviations > 0, deviations, 1.0).tolist())
    )


def _standardised(
    data: EncodedDataset[EncodedRating], scale: RatingScale, parallel: SingleProcess | None
) -> EncodedDataset[EncodedRating]:
    means, deviations = np.array(scale.means), np.array(scale.deviations)
    items = (
        item._replace(values=tuple(((np.array(item.values) - means) / deviations).tolist()), scale=scale)
        for item in data.items
    )
    return with_items(data, items, parallel)


def agreement(measure: Measure, x: Sequence[float], y: Sequence[float], *, seed: int = 0) -> RatingAgreement | None:
    """None where either does not vary. The interval resamples rows."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    interval = correlation_interval(measure, x, y, seed=seed)
    low, high = (interval.low, interval.high) if interval is not None else (-1.0, 1.0)
    return RatingAgreement(measure(x, y), low, high)
