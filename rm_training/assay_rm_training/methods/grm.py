"""GRM: Bradley-Terry regularised by the language head's likelihood of the chosen response.

Covers: the method `grm` and its task (arXiv 2406.10216). Leaves out: the terms (`objectives/regularisers.py`), the
pairs (`bradley_terry.py`), log-probabilities of responses (`methods/response_logprobs.py`).

Loss: (1 - a) * pair loss + a * text term. The base's language head is kept in memory while training (no further
weight where it is tied to the embeddings) and dropped at saving. Two departures from the published code: the reward
head is the stock linear one, not an MLP, so that every engine loads it; and its dropout is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F

from assay.errors import BadInputError
from assay.models.loading import has_reward_head, load_causal_lm, spec_of
from assay.models.parallelism.strategy import SingleProcess
from assay_rm_training.data.encoded_dataset import EncodedDataset
from assay_rm_training.data.pair_dataset import EncodedPair
from assay_rm_training.methods.bradley_terry import BradleyTerry
from assay_rm_training.methods.response_logprobs import Head, checked_starts, response_log_probs, with_references
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupForward, GroupTask, rewards_of, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel, attach, auxiliary_module
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.objectives.regularisers import text_dpo, text_nll, text_sft
from assay_rm_training.training_config import TrainingConfig

LANGUAGE_HEAD = "language_head"
TextTerm = Literal["sft", "nll", "dpo"]


class GrmTask(GroupTask[EncodedPair]):
    """Losses of pairs with the text term. Figure `text`: the chosen response's mean log-probability per token."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, method: "Grm") -> None:
        super().__init__(trainable, config)
        self._method = method

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedPair]) -> BatchLoss:
        method = self._method
        groups = [pair.group for pair in items]
        hidden = self._forward(trainable, groups)
        rewards = rewards_of(trainable, hidden).view(-1, 2)
        chosen, rejected = rewards.unbind(1)
        margin = torch.tensor([pair.margin for pair in items], dtype=torch.float32, device=rewards.device)
        sides = None if method.text == "dpo" else 1
        text = response_log_probs(hidden, items, language_head(trainable), responses=sides)
        if method.text == "dpo":
            reference = torch.tensor([item.reference for item in items], dtype=torch.float32, device=rewards.device)
            terms = text_dpo(text[:, 0], text[:, 1], reference[:, 0], reference[:, 1], beta=method.beta)
        else:
            terms = text_sft(text[:, 0], beta=method.beta) if method.text == "sft" else text_nll(text[:, 0])
        losses = (1 - method.share) * method.loss(chosen, rejected, margin).per_pair + method.share * terms
        d = (chosen - rejected).detach()
        lengths = torch.tensor([len(pair.chosen) - pair.starts[0] for pair in items], device=rewards.device)
        return BatchLoss(
            losses,
            {"accuracy": (d > 0).sum(), "margin": d.sum(), "text": (text[:, 0].detach() / lengths).sum()},
            tokens_of(groups),
            hidden.computed,
            hidden.padding,
            {"chosen": chosen.detach(), "rejected": rejected.detach()},
        )


def language_head(trainable: TrainableModel) -> Head:
    """The base's language head, attached, or the input embeddings where they are tied; in the autocast's format."""
    try:
        weight: torch.Tensor = auxiliary_module(trainable, LANGUAGE_HEAD).weight
    except AttributeError:
        weight = trainable.model.get_input_embeddings().weight  # type: ignore[assignment]
    return lambda states: F.linear(states, weight.to(states.dtype))


@dataclass(frozen=True)
class Grm(BradleyTerry):
    """Pairs under the text regulariser. `share`: a, the text term's share of the loss (0.01). `text`: `sft`
    -log s(beta * log p(chosen)), `nll` -log p(chosen), `dpo` with the untrained base as reference."""

    name: ClassVar[str] = "grm"
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "bradley-terry", "grm")

    loss: Objective = field(default_factory=Objective)
    text: TextTerm = "sft"
    share: float = 0.01
    beta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss.learns_from_ties or self.loss.soft_labels or self.positive:
            raise BadInputError("grm takes decided pairs and no term of the mean chosen reward", field="loss")
        if self.text not in get_args(TextTerm):
            raise BadInputError(f"{self.text!r} is not one of {', '.join(get_args(TextTerm))}", field="text")
        if not 0 <= self.share <= 1:
            raise BadInputError(f"goes from 0 to 1, not {self.share}", field="share")
        if not self.beta > 0:
            raise BadInputError(f"must be positive, not {self.beta}", field="beta")

    def load(self, config: TrainingConfig, device: torch.device) -> TrainableModel:
        """Raises BadInputError for a base that is a reward model, which has no language head."""
        if has_reward_head(config.base):
            raise BadInputError(
                f"{config.base} is a reward model; grm needs a language model and its head", field="base"
            )
        trainable = super().load(config, device)
        if trainable.model.config.get_text_config().tie_word_embeddings:
            return trainable
        base = load_causal_lm(config.base, trainable.tokenizer, dtype=torch.float32, device=device)
        output: Any = base.get_output_embeddings()  # type: ignore[no-untyped-call]
        head = torch.nn.Linear(1, 1, bias=False)
        head.weight = output.weight
        head.requires_grad_(config.lora is None)
        return attach(trainable, LANGUAGE_HEAD, head, is_head=False)

    def prepare(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[EncodedPair],
        eval_data: EncodedDataset[EncodedPair] | None,
        parallel: SingleProcess | None = None,
    ) -> tuple[EncodedDataset[EncodedPair], EncodedDataset[EncodedPair] | None]:
        """Raises BadInputError for a template whose response starts at the first token."""
        parallel = parallel or SingleProcess()
        evaluated = None if eval_data is None else self._referenced(trainable, config, eval_data, parallel)
        return self._referenced(trainable, config, data, parallel), evaluated

    def _referenced(
        self,
        trainable: TrainableModel,
        config: TrainingConfig,
        data: EncodedDataset[EncodedPair],
        parallel: SingleProcess,
    ) -> EncodedDataset[EncodedPair]:
        if self.text != "dpo":
            return checked_starts(data)
        version = f"{spec_of(config.base, template_hash=str).version} {config.dtype}"
        forward = GroupForward(trainable, config)
        return with_references(trainable, language_head, forward, data, version=version, parallel=parallel)

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> GrmTask:  # type: ignore[override]
        return GrmTask(trainable, config, self)

    def card_rows(self) -> list[tuple[str, str]]:
        how = f"{self.text}, share {self.share:g}" + ("" if self.text == "nll" else f", beta {self.beta:g}")
        return [*super().card_rows(), ("text regulariser", f"GRM: {how}; the language head was dropped at saving")]
