"""Weights that are cast once a generation: the tokens and log-probs of weights that are cast at every token."""

from typing import Any

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.samplers.decoding import Decoding
from assay_policy_training.plugins.samplers.decoding_weights import DecodingWeights, cast_bytes
from assay_policy_training.plugins.samplers.transformers import TransformersSampler

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", text),)) for text in ("Hello", "How are you today?")]


def policy_of(lora: int) -> Policy:
    policy = Policy("tiny", device=CPU, max_prompt_tokens=64, autocast=True, lora=Lora(rank=lora))
    torch.manual_seed(0)
    for name, parameter in policy.trainable().items():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    return policy


@pytest.mark.parametrize("lora", [0, 4], ids=["all", "lora"])
def test_weights_cast_once_draw_what_autocast_draws(lora: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = TransformersSampler(policy_of(lora), Sampling(group_size=3, max_new_tokens=16, rows_at_once=3))
    once = sampler.rollout(ITEMS, 3, seed=1, version=0)
    monkeypatch.setattr(Decoding, "_cast", lambda self, model: model)
    each_token = sampler.rollout(ITEMS, 3, seed=1, version=0)
    assert torch.equal(once.tokens, each_token.tokens)
    assert torch.equal(once.logp_mu, each_token.logp_mu)


def test_an_update_is_cast_again() -> None:
    policy = policy_of(0)
    model: Any = policy.model
    weights, ids = DecodingWeights(model), torch.arange(1, 9)[None]

    def logits(of: Any) -> torch.Tensor:
        with torch.no_grad(), policy.precision():
            return of(input_ids=ids).logits  # type: ignore[no-any-return]

    before = logits(weights)
    assert sum(cast.nbytes for cast in weights._casts.values()) == cast_bytes(model) > 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.1)
    assert torch.equal(logits(weights), logits(model))
    assert not torch.equal(logits(weights), before)
