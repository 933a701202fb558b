"""Policies trained on preference pairs: DPO, IPO, SimPO and ORPO.

Covers: one method each, and their task: one packed pass over both responses, their prompt computed once. Leaves out:
log-probabilities (`methods/response_logprobs.py`), the losses' formulas (`objectives/`).
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from annotated_types import Ge, Lt

from assay.data.pairs import open_pairs
from assay.domain import PreferencePair
from assay.models.devices import to_device
from assay.workspace import Workspace
from assay_policy_training.core.logprobs import vocabulary_head
from assay_policy_training.core.ratios import dpo_loss, ipo_loss
from assay_rm_training.data.pair_dataset import EncodedPair, encode_pairs
from assay_rm_training.methods.response_logprobs import response_lengths, response_log_probs
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.objectives.pair import hinge
from assay_rm_training.objectives.preference import log_odds_ratio, robust
from assay_rm_training.preference.method import Beta, LogProbs, PolicyMethod, ReferencedMethod
from assay_rm_training.training_config import TrainingConfig

DpoLoss = Literal["sigmoid", "robust", "hinge"]
Smoothing = Annotated[float, Ge(0), Lt(0.5)]


class PairPolicyTask(GroupTask[EncodedPair]):
    """Losses of pairs. Figure `log_prob`: the chosen response's mean log-probability a token."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, method: "PairMethod") -> None:
        super().__init__(trainable, config)
        self._method = method

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedPair]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        device = trainable.model.device
        with self._forward.autocast(trainable):
            sums = response_log_probs(hidden, items, vocabulary_head(trainable.model))
        lengths = to_device(torch.tensor([response_lengths(item) for item in items]), device)
        references = [item.reference for item in items]
        reference = to_device(torch.tensor(references, dtype=torch.float32), device) if references[0] else None
        measured = LogProbs(sums, lengths, reference)
        chosen, rejected = self._method.rewards(measured).detach().unbind(1)
        return BatchLoss(
            self._method.losses(measured),
            {
                "accuracy": (chosen > rejected).sum(),
                "margin": (chosen - rejected).sum(),
                "log_prob": (sums.detach() / lengths)[:, 0].sum(),
            },
            tokens_of(groups),
            hidden.computed,
            hidden.padding,
            {"chosen": chosen, "rejected": rejected},
        )


class PairMethod(PolicyMethod):
    """The part of a method that is the same for all losses of pairs."""

    @abstractmethod
    def losses(self, measured: LogProbs) -> torch.Tensor:
        """One loss a pair [n], of the log-probabilities [n, 2] of chosen and rejected."""

    def rewards(self, measured: LogProbs) -> torch.Tensor:
        """Implicit rewards [n, 2]."""
        return self.scale * (measured.means if measured.reference is None else measured.ratios)

    def read(self, workspace: Workspace | None, data: str) -> Collection[PreferencePair]:
        return open_pairs(workspace, data)

    encode = staticmethod(partial(encode_pairs, written=True))

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> PairPolicyTask:
        return PairPolicyTask(trainable, config, self)


@dataclass(frozen=True)
class Dpo(PairMethod, ReferencedMethod):
    """Direct preference optimisation (arXiv 2305.18290). `label_smoothing`: with `sigmoid` conservative DPO, with
    `robust` its unbiased form (arXiv 2403.00409)."""

    name: ClassVar[str] = "dpo"

    loss: DpoLoss = "sigmoid"
    label_smoothing: Smoothing = 0.0

    def losses(self, measured: LogProbs) -> torch.Tensor:
        margin = _difference(measured.ratios)
        if self.loss == "hinge":
            return hinge(self.beta * margin)
        if self.loss == "robust":
            return robust(self.beta * margin, label_smoothing=self.label_smoothing)
        return dpo_loss(margin, self.beta, self.label_smoothing)


@dataclass(frozen=True)
class Ipo(PairMethod, ReferencedMethod):
    """Identity preference optimisation (arXiv 2310.12036, equation 17, `beta` for tau), with log-ratios per token, as
    its authors used it."""

    name: ClassVar[str] = "ipo"

    def losses(self, measured: LogProbs) -> torch.Tensor:
        return ipo_loss(_difference(measured.means), self.beta)


@dataclass(frozen=True)
class SimPo(PairMethod):
    """Simple preference optimisation (arXiv 2405.14734): log-probabilities per token, no reference."""

    name: ClassVar[str] = "simpo"

    beta: Beta = 2.0
    gamma: Annotated[float, Ge(0)] = 1.0
    label_smoothing: Smoothing = 0.0

    @property
    def scale(self) -> float:
        return self.beta

    def losses(self, measured: LogProbs) -> torch.Tensor:
        return dpo_loss(_difference(measured.means) - self.gamma / self.beta, self.beta, self.label_smoothing)


@dataclass(frozen=True)
class Orpo(PairMethod):
    """Odds ratio preference optimisation (arXiv 2403.07691): the chosen response's negative log-likelihood a token,
    and `beta` (its lambda) times -log s(log odds ratio)."""

    name: ClassVar[str] = "orpo"

    beta: Beta = 0.1

    @property
    def scale(self) -> float:
        return self.beta

    def losses(self, measured: LogProbs) -> torch.Tensor:
        chosen, rejected = measured.means.unbind(1)
        return -chosen - self.beta * F.logsigmoid(log_odds_ratio(chosen, rejected))


def _difference(both: torch.Tensor) -> torch.Tensor:
    return both[:, 0] - both[:, 1]
