"""Cards A2 and A3c: the reward of a principle model, its loss, and the accuracy on opposite responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    PretrainedConfig,
)

from assay.models.answer_logits import answer_logits, log_odds


class Head(torch.nn.Module):
    """A language head whose hidden states are its logits: three tokens, Yes, No and another."""

    def __init__(self) -> None:
        super().__init__()
        self.config = LlamaConfig()
        self.head = torch.nn.Linear(3, 3, bias=False)
        self.head.weight.data.copy_(torch.eye(3))

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.head


LOGITS = torch.tensor([[2.0, -1.5, 0.3]])


def test_card_a2_reward_loss_and_probability() -> None:
    reward = log_odds(Head(), LOGITS, yes=0, no=1)
    assert reward.tolist() == pytest.approx([3.5], abs=1e-6)
    assert torch.sigmoid(reward).tolist() == pytest.approx([0.970688], abs=1e-6)
    logp = torch.log_softmax(answer_logits(Head(), LOGITS), dim=1)
    assert logp[0].tolist() == pytest.approx([-0.192998, -3.692998, -1.892998], abs=1e-6)
    loss = F.cross_entropy(answer_logits(Head(), LOGITS), torch.tensor([0])).detach()
    assert float(loss) == pytest.approx(0.192998, abs=1e-6)


@pytest.mark.parametrize("shift", [torch.full((1, 3), 7.0), torch.tensor([[0.0, 0.0, 9.0]])])
def test_a_constant_or_another_token_changes_no_reward(shift: torch.Tensor) -> None:
    assert log_odds(Head(), LOGITS + shift, yes=0, no=1).tolist() == pytest.approx([3.5], abs=1e-5)


def test_swapping_the_answers_swaps_the_sign() -> None:
    assert log_odds(Head(), LOGITS, yes=1, no=0).tolist() == pytest.approx([-3.5], abs=1e-6)


SMALL: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "vocab_size": 64}
CONFIGS = [
    GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64),
    LlamaConfig(**SMALL, intermediate_size=64),
    Gemma2Config(**SMALL, intermediate_size=64, num_key_value_heads=2, head_dim=8, final_logit_softcapping=0.5),
    GraniteConfig(**SMALL, intermediate_size=64, logits_scaling=4.0),
    CohereConfig(**SMALL, intermediate_size=64, logit_scale=0.1),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.model_type)
def test_logits_are_the_models_own(config: PretrainedConfig) -> None:
    """Soft caps and scales are part of the model: its own forward pass is the reference."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config).eval()  # type: ignore[no-untyped-call]
    ids = torch.arange(1, 11)[None]
    with torch.inference_mode():
        own = model(input_ids=ids).logits[:, -1].float()
        hidden = getattr(model, model.base_model_prefix)(input_ids=ids).last_hidden_state[:, -1]
        torch.testing.assert_close(answer_logits(model, hidden), own, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(answer_logits(model, hidden, (5, 9)), own[:, [5, 9]], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(log_odds(model, hidden, yes=5, no=9), own[:, 5] - own[:, 9], rtol=1e-5, atol=1e-5)


def test_bfloat16_hidden_states_give_float32_rewards(tiny_principle_base: Path) -> None:
    from assay.models.loading import load_causal_lm, load_tokenizer

    tokenizer = load_tokenizer(str(tiny_principle_base))
    model = load_causal_lm(str(tiny_principle_base), tokenizer, dtype=torch.float32, device=torch.device("cpu"))
    hidden = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rewards = log_odds(model, hidden, yes=5, no=9)
    assert rewards.dtype == torch.float32
    rows = model.get_output_embeddings().weight[[5, 9]].float()
    torch.testing.assert_close(rewards, hidden.float() @ rows[0] - hidden.float() @ rows[1], rtol=1e-5, atol=1e-6)
