"""Policies trained on single responses: KTO on desirable and undesirable ones, supervised fine-tuning on the former.

Covers: both methods and their tasks, encoding, the mismatched responses by which KTO estimates its KL term. Leaves out:
reading rows (`data/response_labels.py`), the loss (`objectives/preference.py`).

The KL term is of the full batch (`training/batch_losses.py`): mean of log pi(y'|x) - log pi_ref(y'|x) over responses y'
to other prompts, at least 0, without gradient. It does not depend on micro-batches or processes. An evaluation's loss
takes it from each forward pass.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
from annotated_types import Ge

from assay.domain import PreferencePair, Prompt, Response
from assay.errors import BadInputError
from assay.models.attention.packing import TokenGroup, group_of
from assay.models.chat.renderer import Renderer
from assay.models.parallelism.strategy import SingleProcess
from assay.runs.progress_bar import Advance, silent
from assay.workspace import Workspace
from assay_policy_training.core.logprobs import vocabulary_head
from assay_rm_training.data.encoded_dataset import Collect, EncodedDataset
from assay_rm_training.data.response_groups import encode_responses, encode_rows, image_in
from assay_rm_training.data.response_labels import UnpairedResponse, load_unpaired
from assay_rm_training.data.stored_dataset import with_items
from assay_rm_training.evaluation.pairs import PairEvaluation, evaluate
from assay_rm_training.methods.response_logprobs import response_lengths, response_log_probs
from assay_rm_training.methods.task import BatchLoss
from assay_rm_training.model.packed_forward import GroupTask, tokens_of
from assay_rm_training.model.trainable_model import TrainableModel
from assay_rm_training.objectives.preference import kto
from assay_rm_training.preference.method import PolicyMethod, Preparation, ReferencedMethod
from assay_rm_training.training_config import TrainingConfig
from assay_serving.scorer import ScoreItem, Scorer


class EncodedResponse(NamedTuple):
    """One response; in KTO a mismatched one beside it, as the group's second branch. `reference`: log p of each."""

    group: TokenGroup
    starts: tuple[int, ...]
    weight: float
    desirable: bool
    reference: tuple[float, ...] = ()

    @property
    def unmatched(self) -> "EncodedResponse":
        """Without the mismatched response."""
        group = group_of(self.group.sequences()[:1], self.group.images[:1])
        return self._replace(group=group, starts=self.starts[:1])


class UnpairedMethod(PolicyMethod):
    """The part of a method that is the same for KTO and supervised fine-tuning."""

    unit: ClassVar[str] = "responses"

    def read(self, workspace: Workspace | None, data: str) -> Collection[UnpairedResponse]:
        return load_unpaired(workspace, data)

    def encode(
        self,
        rows: Collection[UnpairedResponse],
        renderer: Renderer,
        *,
        collect: Collect = list,
        advance: Advance = silent,
    ) -> EncodedDataset[EncodedResponse]:
        def encode(row: UnpairedResponse) -> tuple[EncodedResponse, bool] | str:
            if not row.weight > 0:
                return f"weight not positive: {row.weight}"
            if (fault := image_in([row.response])) is not None:
                return fault
            encoded = encode_responses(renderer, row.prompt, [row.response])
            if isinstance(encoded, str):
                return encoded
            return EncodedResponse(encoded.group, encoded.starts, row.weight, row.desirable), encoded.truncated

        return encode_rows(rows, encode, unit=self.unit, collect=collect, advance=advance)

    def responses(self, rows: Collection[UnpairedResponse]) -> list[ScoreItem]:  # type: ignore[override]
        return [ScoreItem(row.prompt, row.response) for row in rows]

    def evaluate(  # type: ignore[override]
        self, scorer: Scorer, rows: Collection[UnpairedResponse], *, seed: int, advance: Advance = silent
    ) -> PairEvaluation | None:
        """Ranking accuracy on the pairs of a desirable and an undesirable response of one prompt, each response in one
        pair; None where there is none."""
        pairs = list(_pairs(rows))
        return evaluate(scorer, pairs, seed=seed, advance=advance) if pairs else None


class SftTask(GroupTask[EncodedResponse]):
    """Negative log-likelihood; an item's weight is its tokens', so that the batch's loss is the mean over tokens."""

    def weight(self, item: EncodedResponse) -> float:
        return item.weight * response_lengths(item)[0]

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedResponse]) -> BatchLoss:
        groups = [item.group for item in items]
        hidden = self._forward(trainable, groups)
        with self._forward.autocast(trainable):
            sums = response_log_probs(hidden, items, vocabulary_head(trainable.model))[:, 0]
        losses = -sums / torch.tensor([response_lengths(item)[0] for item in items], device=sums.device)
        figures = {"log_prob": -losses.detach().sum()}
        return BatchLoss(losses, figures, tokens_of(groups), hidden.computed, hidden.padding)


@dataclass(frozen=True)
class Sft(UnpairedMethod):
    """Supervised fine-tuning on desirable responses: the chosen ones of pairs. Only the response's tokens are learned,
    the last turns of a conversation of several."""

    name: ClassVar[str] = "sft"
    default_lr: ClassVar[tuple[float, float]] = (2e-5, 2e-4)  #: as TRL 1.16's SFTConfig and example script

    def read(self, workspace: Workspace | None, data: str) -> Collection[UnpairedResponse]:
        """Raises BadInputError for data without a desirable response."""
        rows = [row for row in super().read(workspace, data) if row.desirable]
        if not rows:
            raise BadInputError("holds no desirable response", file=data)
        return rows

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> SftTask:
        return SftTask(trainable, config)


class KtoTask(GroupTask[EncodedResponse]):
    """KTO's loss, as a term of the full batch. `accuracy`: of the implicit reward's sign."""

    def __init__(self, trainable: TrainableModel, config: TrainingConfig, method: "Kto") -> None:
        super().__init__(trainable, config)
        self._method = method

    def measure(self, trainable: TrainableModel, items: Sequence[EncodedResponse]) -> BatchLoss:
        # The mismatched responses have no gradient: the first of the term's two rounds alone needs them.
        parts = [item.unmatched for item in items] if torch.is_grad_enabled() else items
        groups = [item.group for item in parts]
        hidden = self._forward(trainable, groups)
        with self._forward.autocast(trainable):
            sums = response_log_probs(hidden, parts, vocabulary_head(trainable.model))
        references = [item.reference[: sums.shape[1]] for item in items]
        ratios = sums - torch.tensor(references, dtype=torch.float32, device=sums.device)
        outputs = torch.stack([ratios[:, 0], ratios[:, -1].detach()], dim=1)
        ratio, desirable = ratios[:, 0].detach(), self._desirable(items, sums.device)
        training = trainable.model.training
        return BatchLoss(
            torch.zeros_like(ratio) if training else self._losses(items, outputs),
            {
                "accuracy": ((ratio > 0) == desirable).sum(),
                "margin": self._method.beta * torch.where(desirable, ratio, -ratio).sum(),
            },
            tokens_of(groups),
            hidden.computed,
            hidden.padding,
            outputs=outputs,
        )

    def batch_term(self, items: Sequence[EncodedResponse], outputs: torch.Tensor) -> torch.Tensor:
        weights = torch.tensor([item.weight for item in items], device=outputs.device)
        return (self._losses(items, outputs) * weights).sum() / weights.sum()

    def _losses(self, items: Sequence[EncodedResponse], outputs: torch.Tensor) -> torch.Tensor:
        """[n], of the ratios [n, 2] of own and mismatched responses."""
        method = self._method
        return kto(
            outputs[:, 0],
            outputs[:, 1].detach().mean().clamp_min(0),
            self._desirable(items, outputs.device),
            beta=method.beta,
            desirable_weight=method.desirable_weight,
            undesirable_weight=method.undesirable_weight,
        )

    def _desirable(self, items: Sequence[EncodedResponse], device: torch.device) -> torch.Tensor:
        return torch.tensor([item.desirable for item in items], device=device)


@dataclass(frozen=True)
class Kto(UnpairedMethod, ReferencedMethod):
    """Kahneman-Tversky optimisation (arXiv 2402.01306). Its paper takes weights by which desirable weight x desirable
    responses is 1 to 4/3 of the same for undesirable ones."""

    name: ClassVar[str] = "kto"

    desirable_weight: Annotated[float, Ge(0)] = 1.0
    undesirable_weight: Annotated[float, Ge(0)] = 1.0

    def preparation(self, trainable: TrainableModel, config: TrainingConfig, parallel: SingleProcess) -> Preparation:
        """Gives each response a mismatched one, and both their reference. Raises BadInputError for a single prompt."""
        measured = super().preparation(trainable, config, parallel)
        return lambda data: measured(with_items(data, _mismatched(data.items, config.max_length), parallel))

    def task(self, trainable: TrainableModel, config: TrainingConfig) -> KtoTask:
        return KtoTask(trainable, config, self)


def _mismatched(items: Sequence[EncodedResponse], max_length: int | None) -> Iterator[EncodedResponse]:
    """Each item with the response of the next one whose prompt is another, cut to `max_length` tokens."""
    for number, item in enumerate(items):
        sequence, start, images = item.group.sequences()[0], item.starts[0], item.group.images[:1]
        for step in range(1, len(items)):
            other = items[(number + step) % len(items)]
            tokens, begin = other.group.sequences()[0], other.starts[0]
            if other.group.images[:1] != images or not np.array_equal(tokens[:begin], sequence[:start]):
                break
        else:
            raise BadInputError("KTO needs responses to at least two prompts, for its KL term")
        mismatched = np.concatenate([sequence[:start], tokens[begin:]])[:max_length]
        yield item._replace(group=group_of([sequence, mismatched], images * 2), starts=(start, start))


def _pairs(rows: Collection[UnpairedResponse]) -> Iterator[PreferencePair]:
    sides: dict[Prompt, tuple[list[Response], list[Response]]] = defaultdict(lambda: ([], []))
    for row in rows:
        sides[row.prompt][not row.desirable].append(row.response)
    for prompt, (desirable, undesirable) in sides.items():
        for chosen, rejected in zip(desirable, undesirable, strict=False):
            yield PreferencePair(prompt, chosen, rejected)
