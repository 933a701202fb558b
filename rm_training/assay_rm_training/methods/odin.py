"""ODIN: a quality head decorrelated from length, and a length head that is dropped after training.

Covers: the method `odin` and its task (ODIN, arXiv 2402.07319). Leaves out: the terms (`objectives/regularisers.py`),
how a correlation over a batch is accumulated (`batch_losses.py`), the pairs (`bradley_terry.py`).

Bradley-Terry is on r_Q + r_L. r_Q is the model's head, which is saved; r_L is dropped. Length is in tokens of the
response.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from assay.errors import BadInputError
from assay.models.heads import HEAD, apply_head
from assay_rm_training.data.pair_dataset import EncodedPair
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel, attach, auxiliary_module, new_linear
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.objectives.regularisers import length_terms, orthogonality
from assay_rm_training.training_config import TrainingConfig

LENGTH_HEAD = "length_head"


def response_lengths(pair: EncodedPair) -> tuple[int, int]:
    """Tokens of the chosen and of the rejected response, the template's end of turn included."""
    return len(pair.chosen) - pair.starts[0], len(pair.rejected) - pair.starts[1]


class OdinTask(GroupTask[EncodedPair]):
    """Loss of a pair: Bradley-Terry on r_Q + r_L, plus the orthogonality of the two heads (the same for every pair);
    the correlations with length are a term of the whole batch. `accuracy` and `margin` are of r_Q alone."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, method: "Odin") -> None:
        super().__init__(trainable, config)
        self._method = method

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedPair]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        pooled = hidden.last()
        quality_head, length_head = getattr(trainable.model, HEAD), auxiliary_module(trainable, LENGTH_HEAD)
        quality = apply_head(quality_head, pooled).view(-1, 2)  # chosen, rejected
        length = apply_head(length_head, pooled).view(-1, 2)
        both = quality + length
        margin = torch.tensor([item.margin for item in items], dtype=torch.float32, device=both.device)
        losses = self._method.loss(both[:, 0], both[:, 1], margin).per_pair
        angle = orthogonality(quality_head.weight.float(), length_head.weight.float())
        losses = losses + self._method.orthogonal * angle
        d = (quality[:, 0] - quality[:, 1]).detach()
        return BatchLoss(
            losses,
            {"accuracy": (d > 0).sum(), "margin": d.sum(), "cosine": angle.detach() * len(items)},
            tokens_of(groups),
            hidden.computed,
            hidden.padding,
            {"chosen": quality[:, 0].detach(), "rejected": quality[:, 1].detach()},
            torch.cat([quality, length], dim=1),
        )

    def batch_term(self, items: Sequence[EncodedPair], outputs: torch.Tensor) -> torch.Tensor:
        """`outputs` [N, 4]: quality of chosen and rejected, length reward of chosen and rejected."""
        lengths = torch.tensor([response_lengths(item) for item in items], dtype=outputs.dtype).flatten()
        quality, length = outputs[:, :2].flatten(), outputs[:, 2:].flatten()
        return self._method.length * length_terms(quality, length, lengths, of_sum=self._method.of_sum)


@dataclass(frozen=True)
class Odin(BradleyTerry):
    """Pairs with length disentangled. `length`, `orthogonal`: weights of the two terms, 1 in the paper. `of_sum`
    adds |corr(r_Q + r_L, length)|, as the published code does. `loss`: without ties or soft labels."""

    name: ClassVar[str] = "odin"
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "bradley-terry", "odin")

    loss: Objective = field(default_factory=Objective)
    length: float = 1.0
    orthogonal: float = 1.0
    of_sum: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss.learns_from_ties or self.loss.soft_labels or self.positive:
            raise BadInputError("odin takes decided pairs and no term of the mean chosen reward", field="loss")
        for name in ("length", "orthogonal"):
            if not getattr(self, name) >= 0:
                raise BadInputError(f"must not be negative, but is {getattr(self, name)}", field=name)

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        """The length head is random, not zero: two equal heads would get the same Bradley-Terry gradient."""
        trainable = super().load(config, device)
        return attach(trainable, LENGTH_HEAD, new_linear(trainable, 1, seed=config.seed))

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> OdinTask:  # type: ignore[override]
        return OdinTask(trainable, config, self)

    def card_rows(self) -> list[tuple[str, str]]:
        terms = "three" if self.of_sum else "two"
        return [
            *super().card_rows(),
            ("length", f"ODIN: {terms} correlation terms x {self.length:g}, orthogonality x {self.orthogonal:g}"),
            ("heads", "quality head kept; the length head was dropped"),
        ]
