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

from assay.models.heads import answer_logits, log_odds


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
    rows = model.get_output_embeddings().weight[[5, 9]].float()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(rewards, hidden.float() @ rows[0] - hidden.float() @ rows[1], rtol=1e-5, atol=1e-6)


def test_card_a3c_a_tie_is_wrong() -> None:
    """(3.5, -1.0), (0.2, 0.2), (1.0, 2.0) -> 1/3, as rows that are paired and as given pairs."""
    from assay.domain import Message
    from assay_rm_training.benchmarks.item import Outcome, Record
    from assay_rm_training.benchmarks.protocols.principlebench import BENCHMARK
    from assay_rm_training.benchmarks.report import report
    from assay_rm_training.data.principle_rows import PrincipleRow
    from assay_rm_training.evaluation.principle import opposite_pairs, pair_figures

    scores = [(3.5, -1.0), (0.2, 0.2), (1.0, 2.0)]
    rows = [
        PrincipleRow((Message("user", f"prompt {n}"),), answer, "clarity" if n else "depth", answer == "good")
        for n in range(3)
        for answer in ("good", "bad")
    ]
    flat = [score for pair in scores for score in pair]
    figures = pair_figures(opposite_pairs(rows), flat)
    assert figures is not None
    assert figures.accuracy == pytest.approx(1 / 3)
    assert figures.principle_mean == pytest.approx(0.5)  # depth 1 of 1, clarity 0 of 2
    assert figures.length_baseline == 1.0

    records = [
        Record(
            "rows",
            n + 1,
            {
                "prompt": r.prompt[0].content,
                "response": r.response,
                "principle": r.principle,
                "fulfilment": "Yes" if r.fulfilled else "No",
            },
        )
        for n, r in enumerate(rows)
    ]
    items = [item for record in records if (item := BENCHMARK.read(record)) is not None]
    BENCHMARK.check(items)
    found = report(BENCHMARK, items, [Outcome(scores=(score,)) for score in flat], model="m")
    assert found.aggregates["overall"] == pytest.approx(1 / 3)
    assert found.aggregates["principle_mean"] == pytest.approx(0.5)
    assert found.aggregates["principle/depth"] == 1.0
    assert found.counts["ties"] == 1
    halved = report(BENCHMARK, items, [Outcome(scores=(score,)) for score in flat], model="m", ties="half")
    assert halved.aggregates["overall"] == pytest.approx(0.5)

    pairs = [
        Record("pairs", n + 1, {"prompt": f"prompt {n}", "chosen": "good", "rejected": "bad", "principle": "clarity"})
        for n in range(3)
    ]
    items = [item for record in pairs if (item := BENCHMARK.read(record)) is not None]
    found = report(BENCHMARK, items, [Outcome(scores=pair) for pair in scores], model="m")
    assert found.aggregates["overall"] == pytest.approx(1 / 3)
    failed = [Outcome(scores=scores[0]), Outcome(failure="null"), Outcome(scores=scores[2])]
    found = report(BENCHMARK, items, failed, model="m")
    assert found.aggregates["overall"] == pytest.approx(1 / 2)
    assert found.failed_as_wrong["overall"] == pytest.approx(1 / 3)
