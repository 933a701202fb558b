"""What the methods share that train a policy: a stock language model, read as a reward model when it is trained.

Covers: loading, the reference (a model, or the base before training, which adapters start as) and its
log-probabilities, the spec, the pairs of an evaluation. Leaves out: the losses (`pairs.py`, `unpaired.py`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from annotated_types import Gt

from assay.domain import PreferencePair
from assay.models.chat.image_reader import ImageReader
from assay.models.frozen_weights import loading_device
from assay.models.loading import load_causal_lm, load_tokenizer, spec_of
from assay.models.parallelism.strategy import SingleProcess
from assay.models.readings import Implicit
from assay.models.spec import Kind
from assay.models.unread_weights import reads_later
from assay.runs.progress_bar import Advance, silent
from assay.settings import check_settings
from assay_policy_training.core.logprobs import check_head, vocabulary_head
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.response_logprobs import Head, checked_starts, with_references
from assay_rm_training.model.packed_forward import GroupForward
from assay_rm_training.model.trainable_model import TrainableModel, prepare
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.implicit import ImplicitScorer, load_reference
from assay_serving.model_reference import media_of
from assay_serving.scorer import ScoreItem, Scorer

Beta = Annotated[float, Gt(0)]
Preparation = Callable[[EncodedDataset[Any]], EncodedDataset[Any]]


class LogProbs(NamedTuple):
    """Of k responses of n items, [n, k] float32: log p, summed over `lengths` tokens, and under the reference."""

    sums: torch.Tensor
    lengths: torch.Tensor
    reference: torch.Tensor | None

    @property
    def ratios(self) -> torch.Tensor:
        """log pi(y|x) - log pi_ref(y|x); log pi(y|x) without a reference."""
        return self.sums if self.reference is None else self.sums - self.reference

    @property
    def means(self) -> torch.Tensor:
        """`ratios` per token."""
        return self.ratios / self.lengths


@dataclass(frozen=True)
class PolicyMethod(MethodFields):
    """A method without a reference: the reward is beta times the mean log-probability a token."""

    kind: ClassVar[Kind] = "implicit"
    engine: ClassVar[type[ImplicitScorer]] = ImplicitScorer
    unit: ClassVar[str] = "pairs"
    tags: ClassVar[tuple[str, ...]] = ("preference",)
    #: Of a plan without `lr`, for all weights and for adapters: TRL 1.16's DPOConfig, KTOConfig, CPOConfig and
    #: ORPOConfig; its example scripts take ten times as much for adapters.
    default_lr: ClassVar[tuple[float, float]] = (1e-6, 1e-5)
    name: ClassVar[str]

    @property
    def scale(self) -> float:
        """Of the implicit reward."""
        return 1.0

    def __post_init__(self) -> None:
        check_settings(self)

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        tokenizer = load_tokenizer(config.base)
        device = loading_device(config.base_weights, device)
        model = load_causal_lm(config.base, tokenizer, dtype=torch.float32, device=device)
        if not (later := reads_later()):
            check_head(model, device)
        images = ImageReader.load(config.base, tokenizer, media_of(None))
        trainable = TrainableModel(
            model, tokenizer, new_head=False, heads=(), base=config.base, images=images, unchecked=later
        )
        return prepare(trainable, config, language_model=True)

    def prepare(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[Any],
        eval_data: EncodedDataset[Any] | None,
        parallel: SingleProcess | None = None,
    ) -> tuple[EncodedDataset[Any], EncodedDataset[Any] | None]:
        """Raises BadInputError for a template whose response starts at the first token."""
        prepared = self.preparation(trainable, config, parallel or SingleProcess())
        return prepared(data), None if eval_data is None else prepared(eval_data)

    def preparation(self, trainable: TrainableModel, config: TrainingConfig, parallel: SingleProcess) -> Preparation:
        """What makes the items to train on of the encoded ones."""
        return checked_starts

    def implicit(self, base: str) -> Implicit:
        """How the policy trained from `base` is read as a reward model."""
        return Implicit(self.scale)

    def spec_fields(self, trainable: TrainableModel) -> dict[str, Any]:
        return {"implicit": self.implicit(trainable.base)}

    def responses(self, rows: Collection[PreferencePair]) -> list[ScoreItem]:
        return [ScoreItem(pair.prompt, text) for pair in rows for text in (pair.chosen, pair.rejected)]

    def evaluate(
        self, scorer: Scorer, rows: Collection[PreferencePair], *, seed: int, advance: Advance = silent
    ) -> PairEvaluation | None:
        """Ranking accuracy of the implicit reward."""
        return evaluate(scorer, list(rows), seed=seed, advance=advance)

    def card_rows(self) -> list[tuple[str, str]]:
        settings = ", ".join(f"{name} {value}" for name, value in self.to_dict().items() if value is not None)
        return [("loss", f"{self.name}{': ' if settings else ''}{settings}")]


@dataclass(frozen=True)
class ReferencedMethod(PolicyMethod):
    """A method with a reference, whose log-probabilities are measured once, before training."""

    beta: Beta = 0.1
    reference: str | None = None  #: None: the base

    @property
    def scale(self) -> float:
        return self.beta

    def implicit(self, base: str) -> Implicit:
        name = self.reference or base
        return Implicit(self.scale, name, spec_of(name, template_hash=str).version)

    def preparation(self, trainable: TrainableModel, config: TrainingConfig, parallel: SingleProcess) -> Preparation:
        """Measures the reference."""
        implicit = self.implicit(config.base)
        model = trainable
        if self.reference is not None:
            with parallel.loading():
                reference = load_reference(implicit, trainable.tokenizer, trainable.model)
            parallel.shard(reference, keeps_head=False)
            model = TrainableModel(reference, trainable.tokenizer, False, images=trainable.images)
        forward = GroupForward(model, config)
        version = f"{implicit.reference_version} {config.dtype} {config.share_prefix}"

        def head_of(model: TrainableModel) -> Head:
            return vocabulary_head(model.model)

        return partial(with_references, model, head_of, forward, version=version, parallel=parallel)
