"""The order of a step, and that plug-ins of a whole batch see every row of it, whatever the micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import Correction, UpdateContext
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase

HALF = 0.5


@dataclass
class Noted:
    """Takes every place in a step and writes down when it was asked, and what it was shown."""

    rounds: int = 1
    scope: str = "token"
    name: str = "noted"
    coefficient: float = 0.0
    order: list[str] = field(default_factory=list)
    shown: dict[str, RolloutBatch] = field(default_factory=dict)
    needs: ClassVar[frozenset[str]] = frozenset({"logp_old", "sum_pi_sq"})

    def _note(self, place: str, batch: RolloutBatch) -> None:
        self.order.append(place)
        self.shown[place] = batch

    def keep(self, batch: RolloutBatch) -> Tensor:
        self._note("filter", batch)
        return torch.ones(len(batch), dtype=torch.bool)

    def shape(self, batch: RolloutBatch) -> RolloutBatch:
        self._note("shape", batch)
        return batch

    def correct(self, batch: RolloutBatch) -> Correction:
        self._note("correct", batch)
        return Correction(torch.full(batch.mask.shape, HALF), torch.arange(batch.mask.shape[1]) % 2 == batch.mask)

    def __call__(self, batch: RolloutBatch) -> tuple[Tensor, None]:
        self._note("estimate", batch)
        return batch.mask.float(), None

    def modulate(self, batch: RolloutBatch) -> Tensor:
        self._note("modulate", batch)
        assert batch.adv is not None
        return 2 * batch.adv

    def prepare(self, batch: RolloutBatch) -> RolloutBatch:
        self._note("prepare", batch)
        return batch

    def weight(self, logp: Tensor, context: UpdateContext) -> None:
        return None

    def steer(self, batch: RolloutBatch) -> dict[str, float]:
        self._note("steer", batch)
        return {"steered": 1.0}

    def loss(self, logp: Tensor, context: UpdateContext) -> Tensor:
        self.order.append("loss")
        return logp


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> tuple[Noted, dict[str, Any]]:
    note = Noted()
    recipe = load_recipe("grpo")
    recipe = replace(
        recipe,
        filters=(note,),
        shaping=(note,),
        corrections=(note,),
        estimator=note,
        modulators=(note,),
        token_weights=(note,),
        auxiliary=(note,),
        sampling=replace(recipe.sampling, prompts_per_step=2, group_size=3, max_new_tokens=6),
        optimisation=replace(recipe.optimisation, micro_batch_rows=2),
        checkpoint_every=0,
    )
    items = [PromptItem((Message("user", f"Say {n}"),), (AllLowercase(),)) for n in range(4)]
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=True)
    folder: Path = tmp_path_factory.mktemp("run")
    trainer = PolicyLoop(recipe, policy, ShuffledPrompts(items, seed=0), [VerifierReward()], folder)
    (row,) = trainer.train(1)
    kept = trainer.recipe.estimator  # the trainer's copy
    assert isinstance(kept, Noted)
    return kept, row


def test_order_of_a_step(step: tuple[Noted, dict[str, Any]]) -> None:
    note, row = step
    expected = ["filter", "shape", "correct", "estimate", "modulate", "prepare", "steer"]
    assert [place for place in note.order if place != "loss"] == expected
    assert note.order[len(expected) :] == ["loss"] * 3, "one per micro-batch of two rows"
    assert row["steered"] == 1.0


def test_every_row_is_shown(step: tuple[Noted, dict[str, Any]]) -> None:
    note, _ = step
    assert {place: len(batch) for place, batch in note.shown.items()} == dict.fromkeys(note.shown, 6)


def test_estimators_know_the_corrections(step: tuple[Noted, dict[str, Any]]) -> None:
    """The optimal token baseline needs their weights; masks for statistics stay whole."""
    note, _ = step
    shown = note.shown["estimate"]
    assert shown.is_weight is not None
    assert (shown.is_weight == HALF).all()
    assert torch.equal(shown.mask, note.shown["shape"].mask)
    assert shown.loss_mask.sum() < shown.mask.sum()
    assert set(shown.extras) == {"sum_pi_sq"}
    later = note.shown["prepare"].adv
    assert later is not None
    assert torch.equal(later, 2.0 * shown.mask)
