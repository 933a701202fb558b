"""Training on preference pairs: a scalar reward model under Bradley-Terry or another pairwise loss.

Covers: the method `bt` and its task, with ties and split votes where the loss learns from them. Leaves out: the
losses (`objectives/`), labels from votes (`pair_labels.py`), the forward pass (`packed_forward.py`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from assay.data.pairs import open_pairs
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.devices import to_device
from assay.models.parallelism.strategy import SingleProcess
from assay.models.spec import Kind
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.pair_dataset import EncodedPair, encode_pairs, read_labelled_pairs
from assay_rm_training.data.stored_dataset import with_items
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.methods.method import MethodFields
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, rewards_of, tokens_of
from assay_rm_training.model.trainable_model import (
    Parameter,
    TrainableModel,
    attach,
    auxiliary_module,
    detach_modules,
    load_trainable,
)
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.objectives.regularisers import positive_mean
from assay_rm_training.training_config import TrainingConfig
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.scorer import ScoreItem, Scorer

TIE = "tie"


class PairTask(GroupTask[EncodedPair]):
    """Losses of encoded pairs under `objective`. A tie counts 1/2 in `accuracy`."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, objective: Objective) -> None:
        super().__init__(trainable, config)
        self.objective = objective

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedPair]) -> BatchLoss:
        device = trainable.model.device
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        chosen, rejected = rewards_of(trainable, hidden).view(-1, 2).unbind(1)
        margin = to_device(torch.tensor([item.margin for item in items], dtype=torch.float32), device)
        d = (chosen - rejected).detach()
        ties = to_device(torch.tensor([item.tie for item in items]), device)
        figures = {"accuracy": torch.where(ties, 0.5, (d > 0).float()).sum(), "margin": d.sum()}
        target = tie_parameter = None
        if self.objective.learns_from_ties:
            target = torch.where(ties, 0.5, 1.0)
            tie_parameter = auxiliary_module(trainable, TIE).value
            figures["tie_parameter"] = tie_parameter.detach() * len(items)
        elif self.objective.soft_labels:
            target = to_device(torch.tensor([item.preference for item in items], dtype=torch.float32), device)
        loss = self.objective(chosen, rejected, margin, target=target, tie_parameter=tie_parameter)
        return BatchLoss(
            loss.per_pair,
            figures,
            tokens_of(groups),
            hidden.computed,
            hidden.padding,
            {"chosen": chosen.detach(), "rejected": rejected.detach()},
            torch.stack([chosen, rejected], dim=1),
        )


class PositiveMeanTask(PairTask):
    """Adds `weight` * -log s(mean chosen reward of the full batch)."""

    def __init__(
        self, trainable: TrainableModel, config: TrainingConfig, objective: Objective, positive: float
    ) -> None:
        super().__init__(trainable, config, objective)
        self._positive = positive

    def batch_term(self, items: Sequence[EncodedPair], outputs: torch.Tensor) -> torch.Tensor:
        return self._positive * positive_mean(outputs[:, 0])


@dataclass(frozen=True)
class BradleyTerry(MethodFields):
    """A stock sequence classifier of one label, trained on pairs. `loss`: see `Objective`.

    `vote_prior`: of soft labels, see `objectives/soft_labels.py`. `positive`: weight of -log s(mean chosen reward of a
    batch), the GRM repository's "pos_reg" (0.1 there), at the cost of a second forward pass.
    """

    name: ClassVar[str] = "bt"
    kind: ClassVar[Kind] = "scalar"
    engine: ClassVar[type[TransformersScorer]] = TransformersScorer
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "bradley-terry")
    unit: ClassVar[str] = "pairs"

    loss: Objective = field(default_factory=Objective)
    vote_prior: float = 0.5
    positive: float = 0.0

    def __post_init__(self) -> None:
        for name in ("vote_prior", "positive"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, but is {getattr(self, name)}", field=name)

    @classmethod
    def read_fields(cls, payload: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {**payload, "loss": Objective(**payload.get("loss", {}))}
        except TypeError as error:
            raise BadInputError(f"not an objective of this version: {error}", field="loss") from error

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        trainable = load_trainable(config, device)
        return attach(trainable, TIE, Parameter(0.0)) if self.loss.learns_from_ties else trainable

    def read(self, workspace: Workspace | None, data: str) -> Collection[PreferencePair]:
        if self.loss.learns_from_ties or self.loss.soft_labels:
            return read_labelled_pairs(workspace, data, soft=self.loss.soft_labels, prior=self.vote_prior)
        return open_pairs(workspace, data)

    encode = staticmethod(encode_pairs)

    def prepare(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[EncodedPair],
        eval_data: EncodedDataset[EncodedPair] | None,
        parallel: SingleProcess | None = None,
    ) -> tuple[EncodedDataset[EncodedPair], EncodedDataset[EncodedPair] | None]:
        """Initialise the tie parameter from the share of ties. Evaluation during training is on decided pairs only."""
        if self.loss.learns_from_ties:
            share = sum(item.tie for item in data.items) / len(data)
            with torch.no_grad():
                auxiliary_module(trainable, TIE).value.fill_(self.loss.tie_start(share))
        return data, None if eval_data is None else _decided(eval_data, parallel)

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> PairTask:
        if self.positive:
            return PositiveMeanTask(trainable, config, self.loss, self.positive)
        return PairTask(trainable, config, self.loss)

    def finish(self, trainable: TrainableModel, data: EncodedDataset[Any]) -> dict[str, Any]:
        detach_modules(trainable)
        return {}

    def responses(self, rows: Collection[PreferencePair]) -> list[ScoreItem]:
        return [ScoreItem(pair.prompt, text) for pair in rows for text in (pair.chosen, pair.rejected)]

    def evaluate(
        self, scorer: Scorer, rows: Collection[PreferencePair], *, seed: int, advance: Advance = silent
    ) -> PairEvaluation:
        """On the decided pairs only."""
        return evaluate(scorer, [pair for pair in rows if not pair.tie], seed=seed, advance=advance)

    def card_rows(self) -> list[tuple[str, str]]:
        loss = self.loss
        parts = [
            loss.name,
            f"centring {loss.centring:g}",
            f"label smoothing {loss.label_smoothing:g}",
            f"temperature {loss.temperature:g}",
            f"margins {'used' if loss.use_margin else 'not used'}",
        ]
        if loss.soft_labels:
            parts.append(f"soft labels from votes (prior {self.vote_prior:g})")
        parts += [f"{name} {value:g}" for name, value in self._weights() if value]
        return [("loss", ", ".join(parts))]

    def _weights(self) -> list[tuple[str, float]]:
        return [("squares", self.loss.squares), ("bound", self.loss.bound), ("mean chosen reward", self.positive)]


def _decided(data: EncodedDataset[EncodedPair], parallel: SingleProcess | None) -> EncodedDataset[EncodedPair]:
    """Without ties. Raises BadInputError where none remains."""
    if not any(item.tie for item in data.items):
        return data
    decided = with_items(data, (item for item in data.items if not item.tie), parallel)
    if not len(decided):
        raise BadInputError("the evaluation data holds no decided pair")
    return decided
