"""A principle reward depends on its item alone: not on its batch, its order, the padding side, what is shared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message
from assay.score import Score, ScoreResult
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

TOLERANCE = 2e-5  # float32, another order of summation


@pytest.fixture(scope="module")
def scorer(tiny_principle_model: Path) -> PrincipleScorer:
    return PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", token_budget=2048))


def items() -> list[ScoreItem]:
    prompts = [(Message("user", "Why is the sky blue? " * (1 + n % 3)),) for n in range(3)]
    return [
        ScoreItem(prompts[n % 3], "Because it scatters. " * (n % 4) + str(n % 5), f"Principle {'x' * (n % 7)}{n % 6}")
        for n in range(24)
    ]


def rewards(results: list[ScoreResult]) -> torch.Tensor:
    assert all(isinstance(r, Score) for r in results), results
    return torch.tensor([r.reward for r in results if isinstance(r, Score)], dtype=torch.float64)


def assert_close(first: torch.Tensor, second: torch.Tensor) -> None:
    torch.testing.assert_close(first, second, rtol=TOLERANCE, atol=TOLERANCE)


def test_alone_equals_together(scorer: PrincipleScorer) -> None:
    given_items = items()
    alone = torch.cat([rewards(scorer.score([item])) for item in given_items])
    assert_close(rewards(scorer.score(given_items)), alone)


def test_every_other_way_gives_the_same_rewards(scorer: PrincipleScorer) -> None:
    expected = rewards(scorer.score(items()))
    names = []
    for name, other in scorer.other_ways():
        names.append(name)
        assert_close(rewards(other.score(items())), expected)
    assert names == ["packed = padded", "left = right padding"]


@settings(max_examples=10)
@given(order=st.permutations(range(24)))
def test_the_order_of_items_does_not_matter(scorer: PrincipleScorer, order: list[int]) -> None:
    expected = rewards(scorer.score(items()))
    shuffled = [items()[i] for i in order]
    assert_close(rewards(scorer.score(shuffled)), expected[order])


def test_the_budget_does_not_matter(tiny_principle_model: Path, scorer: PrincipleScorer) -> None:
    small = PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu", token_budget=1))
    assert_close(rewards(small.score(items())), rewards(scorer.score(items())))


def test_the_reward_is_the_models_own_log_odds(scorer: PrincipleScorer) -> None:
    """Against the model's whole forward pass over the tokenizer's own generation prompt."""
    answers = scorer.questions.answers
    for item in items()[:6]:
        ids = torch.tensor([scorer.questions.encode(item.prompt, item.response, item.principle or "").ids])
        with torch.inference_mode():
            logp = scorer.model(input_ids=ids).logits[0, -1].float().log_softmax(-1)
        expected = (logp[answers.yes] - logp[answers.no]).double()[None]
        assert_close(rewards(scorer.score([item])), expected)


def test_another_principle_gives_another_reward(scorer: PrincipleScorer) -> None:
    item = items()[0]
    first, second = rewards(scorer.score([item, ScoreItem(item.prompt, item.response, "Something else")]))
    assert first != second
