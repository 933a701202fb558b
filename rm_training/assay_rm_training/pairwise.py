"""Preference pairs as a way to train: a scalar reward model under Bradley-Terry or another loss of pairs.

Covers: the method `bt` and its task. Leaves out: the losses (`losses.py`), the forward pass (`pair_forward.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import torch

from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.devices import pick_dtype
from assay.models.renderer import Renderer
from assay.models.spec import Kind
from assay.pairs import load_pairs_or_file
from assay.progress import Advance, silent
from assay.workspace import Workspace
from assay_rm_training.base_model import Trainee, load_trainee
from assay_rm_training.config import TrainingConfig
from assay_rm_training.evaluate import Evaluation, evaluate
from assay_rm_training.item_set import ItemSet
from assay_rm_training.losses import Objective
from assay_rm_training.pair_forward import can_share, collate, pair_length, pair_rewards
from assay_rm_training.pairs_dataset import EncodedPair, encode_pairs
from assay_rm_training.task import Measured
from assay_serving.scorer import ScoreItem, Scorer
from assay_serving.transformers_engine import TransformersScorer


class PairTask:
    """Losses of encoded pairs under `objective`."""

    def __init__(self, trainee: Trainee, config: TrainingConfig, objective: Objective) -> None:
        self.objective = objective
        self._share = config.share_prefix and can_share(trainee.model)
        self._pad = int(trainee.tokenizer.pad_token_id or 0)
        self._dtype = pick_dtype(trainee.model.device, config.dtype)

    def cost(self, item: EncodedPair) -> int:
        return pair_length(item, share=self._share)

    def weight(self, item: EncodedPair) -> float:
        return item.weight

    def measure(self, trainee: Trainee, items: Sequence[EncodedPair]) -> Measured:
        device = trainee.model.device
        batch = collate(items, pad=self._pad, share=self._share, device=device)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self._dtype == torch.bfloat16):
            chosen, rejected = pair_rewards(trainee.model, batch)
        d = (chosen - rejected).detach()
        return Measured(
            self.objective(chosen, rejected, batch.margin).per_pair,
            {"accuracy": (d > 0).sum(), "margin": d.sum()},
            batch.tokens,
            batch.computed,
            batch.padding,
            {"chosen": chosen.detach(), "rejected": rejected.detach()},
        )


@dataclass(frozen=True)
class Pairwise:
    """A stock sequence classifier of one label, trained on pairs. `loss`: see `Objective`."""

    name: ClassVar[str] = "bt"
    kind: ClassVar[Kind] = "scalar"
    engine: ClassVar[type[TransformersScorer]] = TransformersScorer
    tags: ClassVar[tuple[str, ...]] = ("reward-model", "bradley-terry")
    unit: ClassVar[str] = "pairs"

    loss: Objective = field(default_factory=Objective)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, payload: dict[str, Any]) -> Pairwise:
        """Inverse of `to_dict`. Raises BadInputError for what this version does not know."""
        try:
            return cls(loss=Objective(**payload.get("loss", {})))
        except TypeError as error:
            raise BadInputError(f"not an objective of this version: {error}", field="loss") from error

    def load(self, config: TrainingConfig, device: torch.device) -> Trainee:
        return load_trainee(config, device)

    def read(self, workspace: Workspace | None, data: str) -> list[PreferencePair]:
        return load_pairs_or_file(workspace, data)

    def encode(
        self, rows: Sequence[PreferencePair], renderer: Renderer, *, advance: Advance = silent
    ) -> ItemSet[EncodedPair]:
        return encode_pairs(rows, renderer, advance=advance)

    def task(self, trainee: Trainee, config: TrainingConfig) -> PairTask:
        return PairTask(trainee, config, self.loss)

    def spec_fields(self, trainee: Trainee) -> dict[str, Any]:
        return {}

    def responses(self, rows: Sequence[PreferencePair]) -> list[ScoreItem]:
        return [ScoreItem(pair.prompt, text) for pair in rows for text in (pair.chosen, pair.rejected)]

    def evaluate(
        self, scorer: Scorer, rows: Sequence[PreferencePair], *, seed: int, advance: Advance = silent
    ) -> Evaluation:
        return evaluate(scorer, rows, seed=seed, advance=advance)

    def card_rows(self) -> list[tuple[str, str]]:
        loss = self.loss
        return [
            (
                "loss",
                f"{loss.name}, centring {loss.centring:g}, label smoothing {loss.label_smoothing:g}, "
                f"temperature {loss.temperature:g}, margins {'used' if loss.use_margin else 'not used'}",
            )
        ]
