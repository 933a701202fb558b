"""Gradient checkpointing changes what lies in memory between the passes, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.domain import Message
from assay.errors import BadInputError
from assay.models.checkpointing import checkpoint_layers
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.samplers.transformers import TransformersSampler
from assay_policy_training.recipe.loading import load_recipe

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("hi", "a rather longer prompt than the others")]


def policy(*, checkpointing: bool, lora: bool = False, packs: bool = True) -> Policy:
    torch.manual_seed(3)  # of new adapters
    made = Policy(
        "tiny",
        device=CPU,
        max_prompt_tokens=64,
        gradient_checkpointing=checkpointing,
        lora=Lora(rank=4, alpha=8) if lora else None,
    )
    if not packs:
        made.model.set_attn_implementation("eager")  # rows are padded then
    return made


def drawn(by: Policy) -> RolloutBatch:
    sampling = Sampling(max_new_tokens=40)
    return TransformersSampler(by, sampling).rollout(ITEMS, 4, seed=1, version=0)


def gradients(of: Policy, batch: RolloutBatch) -> tuple[dict[str, Tensor], int]:
    """By weight, and the bytes that the forward pass left for the backward pass, weights aside."""
    kept: dict[int, int] = {}
    weights = {p.untyped_storage().data_ptr() for p in of.model.parameters()}

    def keep(saved: Tensor) -> Tensor:
        if (place := saved.untyped_storage().data_ptr()) not in weights:
            kept[place] = saved.untyped_storage().nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        loss = (of.scores(batch, temperature=1.0).logp * batch.mask).sum()
    size = sum(kept.values())
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.clone() for name, p in of.trainable().items() if p.grad is not None}, size


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("packs", [True, False])
def test_the_same_gradients_for_less_memory(packs: bool, lora: bool) -> None:
    plain, saving = (policy(checkpointing=c, lora=lora, packs=packs) for c in (False, True))
    batch = drawn(plain)
    (expected, before), (found, after) = gradients(plain, batch), gradients(saving, batch)
    assert expected.keys() == found.keys()
    assert any(bool(value.any()) for value in expected.values())
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert after < before / 2, (after, before)


def test_sampling_keeps_its_cache_and_stays_in_eval_mode() -> None:
    plain, saving = (policy(checkpointing=c) for c in (False, True))
    batch = drawn(plain)
    gradients(saving, batch)
    assert not any(module.training for module in saving.model.modules())
    assert torch.equal(drawn(saving).tokens, batch.tokens)


def test_the_recipe_names_it_and_a_model_without_it_is_refused(tmp_path: Path) -> None:
    assert load_recipe("grpo", ["optimisation.gradient_checkpointing=true"]).optimisation.gradient_checkpointing
    with pytest.raises(BadInputError, match="gradient_checkpointing"):
        checkpoint_layers(torch.nn.Sequential(torch.nn.Linear(2, 2)))
