"""A score depends on the item alone, on every decoder architecture: not on its batch, its order or the padding side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    Gemma2Config,
    GPT2Config,
    PretrainedConfig,
    Qwen2Config,
)

from assay.domain import Message, Prompt
from assay.errors import BadInputError
from assay.models.loading import load_tokenizer
from assay.models.quiet import quiet_transformers
from assay.score import Score, ScoreResult
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

TOLERANCE = 2e-5  # float32, another order of summation
SMALL: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}


def architectures() -> dict[str, PretrainedConfig]:
    gqa: dict[str, Any] = {**SMALL, "num_key_value_heads": 2, "intermediate_size": 64}
    return {
        "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=1024),  # learned absolute positions
        "qwen2": Qwen2Config(**gqa),
        "gemma2": Gemma2Config(**gqa, head_dim=8, sliding_window=32),  # soft-capped, sliding window
    }


@pytest.fixture(scope="module", params=["llama", "gpt2", "qwen2", "gemma2"])
def checkpoint(
    request: pytest.FixtureRequest, tiny_reward_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A reward model of the architecture, saved as others would save it; llama is our own, with its spec."""
    if request.param == "llama":
        return tiny_reward_model
    folder = tmp_path_factory.mktemp("models") / str(request.param)
    tokenizer = load_tokenizer("tiny")
    config = architectures()[request.param]
    config.vocab_size, config.num_labels = len(tokenizer), 1
    config.pad_token_id = tokenizer.pad_token_id
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(3)
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
        tokenizer.save_pretrained(folder)
    return folder


def conversation(turns: int, text: str) -> Prompt:
    messages = [Message("system", "Answer well.")] if turns > 1 else []
    for turn in range(turns):
        messages.append(Message("user", f"{text} ({turn})"))
        if turn < turns - 1:
            messages.append(Message("assistant", "Go on."))
    return tuple(messages)


def some_items() -> list[ScoreItem]:
    return [
        ScoreItem(
            conversation(1 + n % 3, "Why is the sky blue? " * (1 + n % 4)), "Because it scatters. " * (n % 7) + str(n)
        )
        for n in range(13)
    ]


def rewards(results: list[ScoreResult]) -> torch.Tensor:
    assert all(isinstance(r, Score) for r in results), results
    return torch.tensor([r.reward for r in results if isinstance(r, Score)], dtype=torch.float64)


def assert_close(first: torch.Tensor, second: torch.Tensor) -> None:
    torch.testing.assert_close(first, second, atol=TOLERANCE, rtol=0)


def test_batch_of_one_equals_batch_of_many(checkpoint: Path) -> None:
    scorer = TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu"))
    items = some_items()
    together = rewards(scorer.score(items))
    alone = torch.cat([rewards(scorer.score([item])) for item in items])
    assert together.std() > 100 * TOLERANCE  # else the comparison would say nothing
    assert_close(together, alone)


def test_left_padding_equals_right_padding(checkpoint: Path) -> None:
    items = some_items()
    # One batch of all, so that nearly every row is padded.
    options: dict[str, Any] = {"device": "cpu", "token_budget": 1 << 20}
    right = TransformersScorer.load(
        ModelConfig(str(checkpoint), **options),
        layout="right",
    )
    left = TransformersScorer.load(
        ModelConfig(str(checkpoint), **options),
        layout="left",
    )
    assert_close(rewards(right.score(items)), rewards(left.score(items)))


def test_shared_prompts_give_the_scores_of_padded_rows(checkpoint: Path) -> None:
    """Groups of responses to one prompt, mixed with others and in no order."""
    items = [ScoreItem(conversation(2, f"Question {n % 3}? " * 4), "Because. " * (n % 5) + str(n)) for n in range(14)]
    items += some_items()
    packed = TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu"))
    padded = TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu"), layout="right")
    assert_close(rewards(packed.score(items)), rewards(padded.score(items)))
    assert packed.last_tokens == padded.last_tokens == padded.last_computed - padded.last_padding
    if checkpoint.name in ("tiny-rm", "qwen2"):
        assert packed.last_padding == 0
        assert packed.last_computed < 0.8 * packed.last_tokens


def test_a_pass_of_no_tokens_is_refused(checkpoint: Path) -> None:
    with pytest.raises(BadInputError, match="must be at least 1"):
        TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu", token_budget=0))


def test_order_and_neighbours_do_not_matter(checkpoint: Path) -> None:
    scorer = TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu", token_budget=600))
    items = some_items()
    scores = rewards(scorer.score(items))
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(1)).tolist()
    assert_close(rewards(scorer.score([items[i] for i in order])), scores[order])
    assert_close(rewards(scorer.score(items[::2])), scores[::2])


def test_equals_the_stock_classifier(checkpoint: Path) -> None:
    """Our pooling gives the logits that transformers' own class gives on the same tokens."""
    scorer = TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu"))
    items = some_items()
    stock = AutoModelForSequenceClassification.from_pretrained(checkpoint, dtype=torch.float32).eval()
    expected = []
    with torch.inference_mode():
        for item in items:
            ids = torch.tensor([scorer.renderer.encode(item.prompt, item.response).ids])
            expected.append(stock(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 0].double())
    assert_close(rewards(scorer.score(items)), torch.stack(expected))


def test_soft_capped_models_run_in_eager_attention(checkpoint: Path) -> None:
    scorer = TransformersScorer.load(ModelConfig(str(checkpoint), device="cpu"))
    soft_capped = checkpoint.name == "gemma2"
    assert (scorer.info.attention == "eager") == soft_capped


def test_bfloat16_stays_near_float32_and_says_so(tiny_reward_model: Path) -> None:
    items = some_items()
    exact = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    rounded = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", dtype="bfloat16"))
    assert (exact.info.dtype, rounded.info.dtype) == ("float32", "bfloat16")
    torch.testing.assert_close(rewards(rounded.score(items)), rewards(exact.score(items)), atol=0.05, rtol=0)
