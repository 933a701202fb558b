"""Every number of the reference oracles of rewards shaped on a whole step."""

from __future__ import annotations

import math

import pytest
import torch

from assay_policy_training.plugins.estimators.group_relative import grpo
from assay_policy_training.plugins.modulators.reward_scaling import data_scale, model_scale, similarity
from assay_policy_training.plugins.modulators.steps import progress
from assay_policy_training.plugins.shaping.dense import clip, delta
from assay_policy_training.plugins.shaping.laser import bands, laser_reward, length_target, released_counts
from assay_policy_training.plugins.shaping.length import concise_reward, cosine, kimi_score, overlong_penalty
from assay_policy_training.plugins.shaping.par import par
from assay_policy_training.plugins.shaping.repetition import discounted_stream, repeated_share, repeated_tokens
from assay_policy_training.plugins.shaping.rlcr import paper_reward, repository_reward
from assay_policy_training.plugins.shaping.rubric import saturated_weights, standardised_items
from assay_policy_training.plugins.shaping.trust import trust, trusted_reward

TOLERANCE = 1e-5
ONE_GROUP = torch.zeros(4, dtype=torch.long)


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def suffix_sums(values: list[float]) -> list[float]:
    return [sum(values[i:]) for i in range(len(values))]


def test_overlong() -> None:
    found = overlong_penalty(torch.tensor([16384, 18432, 20480, 100]), 20480, 4096, 1.0)
    assert found.tolist() == pytest.approx([0, -0.5, -1, 0])


def test_cosine() -> None:
    lengths = torch.tensor([0, 4096, 8192, 12288])
    assert cosine(lengths, 16384, 2.0, 1.0).tolist() == pytest.approx([2, 1.853553, 1.5, 1.146447], abs=TOLERANCE)
    assert cosine(lengths, 16384, -10.0, 0.0).tolist() == pytest.approx([-10, -8.535534, -5, -1.464466], abs=TOLERANCE)


def test_kimi_length_score() -> None:
    lengths, everyone = torch.tensor([100, 200, 300]), torch.ones(3).bool()
    right = kimi_score(lengths, everyone, numbers(1, 1, 1), ONE_GROUP[:3])
    wrong = kimi_score(lengths, everyone, numbers(0, 0, 0), ONE_GROUP[:3])
    assert right.tolist() == pytest.approx([0.5, 0, -0.5])
    assert wrong.tolist() == pytest.approx([0, 0, -0.5])


def test_concise_right_answers() -> None:
    """By hand: the shortest right answer gets the whole bonus, the longest none, a wrong one nothing."""
    found = concise_reward(torch.tensor([100, 200, 300, 50]), numbers(1, 1, 1, 0), ONE_GROUP, 0.5)
    assert found.tolist() == pytest.approx([1.5, 1.25, 1.0, 0.0])


def test_laser() -> None:
    found = laser_reward(
        numbers(1, 1, 0), torch.tensor([3000, 5000, 3000]), torch.full((3,), 4096), correct=1.0, wrong=-0.5, bonus=0.5
    )
    assert found.tolist() == [1.5, 1.0, -0.5]


@pytest.mark.parametrize(
    ("band", "coverage", "target"),
    [
        ("high", [0.1, 0.25, 0.6, 0.9], 5120),
        ("medium", [0.2, 0.45, 0.55, 0.8], 6144),
        ("low", [0.3, 0.5, 0.9, 1], 7168),
    ],
)
def test_laser_d_targets_as_released(band: str, coverage: list[float], target: int) -> None:
    counts = released_counts(8)
    assert counts == {"high": 5, "medium": 2, "low": 1}
    assert length_target([4096, 5120, 6144, 7168], coverage, counts[band]) == target
    assert length_target([4096], [0.1], counts[band]) is None


def test_bands_have_one_set_of_edges() -> None:
    """2 of 3 right is high and 1 of 3 medium, where targets are estimated and where they are used."""
    group = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 3])
    right = numbers(1, 1, 0, 1, 0, 0, 0, 0, 0, torch.nan)
    assert bands(right, group).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, -1]


def test_par() -> None:
    references = numbers(0, 1, 2)
    found = [par(r, references) for r in (-2, 0, 1, 5)]
    assert found == pytest.approx([0.061538, 0.296048, 0.5, 0.975965], abs=TOLERANCE)
    assert par(1.5, numbers(1, 0)) == pytest.approx(0.720017, abs=TOLERANCE)
    assert (par(1e-4, numbers(0)) - par(-1e-4, numbers(0))) / 2e-4 == pytest.approx(0.25, abs=TOLERANCE)
    assert par(8.0, numbers(0)) == pytest.approx(0.999665, abs=TOLERANCE)


def test_clip_and_delta() -> None:
    scores = [0.9, 0.6, 0.8, 0.7]
    assert clip(scores, 0.75) == pytest.approx([0, -0.15, 0, -0.05])
    assert delta(scores) == pytest.approx([0.3, -0.2, 0.8, 0])
    assert suffix_sums(delta(scores)) == pytest.approx([0.9, 0.6, 0.8, 0])
    both = delta(clip(scores, 0.75))
    assert both == pytest.approx([0.15, -0.15, 0, 0])
    assert suffix_sums(both) == pytest.approx([0, -0.15, 0, 0])
    assert suffix_sums(scores) == pytest.approx([3.0, 2.1, 1.5, 0.7])  # what grows with length


def test_clip_and_delta_with_the_last_step_counting() -> None:
    scores = [0.6, 0.7, 0.65, 0.9]
    assert clip(scores, 0.7) == pytest.approx([-0.1, 0, -0.05, 0])
    found = delta(scores, last_counts=True)
    assert found == pytest.approx([-0.1, 0.05, -0.25, 0.9])
    assert sum(found) == pytest.approx(0.6)


def test_a_repeated_step_earns_nothing_more() -> None:
    scores = [0.9, 0.6, 0.8]
    assert delta([]) == []
    assert delta([0.7]) == [0.0]
    longer = [0.9, 0.9, 0.6, 0.8]
    assert suffix_sums(delta(longer))[0] == pytest.approx(suffix_sums(delta(scores))[0])
    assert suffix_sums(longer)[0] > suffix_sums(scores)[0]


@pytest.mark.parametrize(
    ("right", "stated", "paper", "repository"),
    [(1, 0.8, 0.96, 1.48), (0, 0.8, -0.64, 0.68), (1, 0.3, 0.51, 1.255), (0, 0.0, 0.0, 1.0)],
)
def test_rlcr(right: float, stated: float, paper: float, repository: float) -> None:
    assert paper_reward(right, stated) == pytest.approx(paper)
    assert repository_reward(right, stated) == pytest.approx(repository)
    assert repository_reward(right, stated) == pytest.approx(1.0 + 0.5 * paper_reward(right, stated))
    assert repository_reward(right, None) == 0


def test_rlcr_is_highest_at_the_true_probability() -> None:
    expected = [0.7 * paper_reward(1, q / 100) + 0.3 * paper_reward(0, q / 100) for q in range(101)]
    assert max(range(101), key=expected.__getitem__) == 70


def test_rubric() -> None:
    items = torch.tensor([[0.9, 0.2], [0.95, 0.4], [1.0, 0.6], [0.9, 0.8]], dtype=torch.float64)
    equal = numbers(0.5, 0.5)
    weights = saturated_weights(items, ONE_GROUP, equal, 1.0)
    assert weights[0].tolist() == pytest.approx([0.111111, 0.888889], abs=TOLERANCE)
    standard = standardised_items(items, ONE_GROUP)
    assert (standard * saturated_weights(items, ONE_GROUP, equal, 0.0)).sum(1).tolist() == pytest.approx(
        [-1.123087, -0.072851, 0.977385, 0.218553], abs=TOLERANCE
    )
    assert (standard * weights).sum(1).tolist() == pytest.approx(
        [-1.293073, -0.364022, 0.565029, 1.092066], abs=TOLERANCE
    )
    flat = items.clone()
    flat[:, 0] = 0.9
    assert standardised_items(flat, ONE_GROUP)[:, 0].tolist() == [0, 0, 0, 0]


def test_trust() -> None:
    outcome, thinking = numbers(1, 1, 0, 0), numbers(0.4, 0.6, 0.8, 0.9)
    assert trust(outcome, thinking, ONE_GROUP).tolist() == pytest.approx([0.704688] * 4, abs=TOLERANCE)
    weight = 0.3 * math.exp(-100 / 500)
    assert trusted_reward(outcome, thinking, ONE_GROUP, weight).tolist() == pytest.approx(
        [1.069234, 1.103851, 0.138468, 0.155776], abs=TOLERANCE
    )
    judged_if_right = numbers(0.4, 0.6, 0.0, 0.0)  # as released: a wrong row's thinking is scored 0
    assert trusted_reward(outcome, judged_if_right, ONE_GROUP, weight).tolist() == pytest.approx(
        [1.098248, 1.147372, 0, 0], abs=TOLERANCE
    )


def test_progress() -> None:
    assert progress([0.2, 0.5, 0.5, 0.4]) == pytest.approx([0.3, 0, -0.1])


def test_repetition() -> None:
    """By hand, 2-grams of a b a b c: "a b" comes twice, the second time on tokens 2 and 3."""
    assert repeated_tokens([1, 2, 1, 2, 3], 2) == [False, False, True, True, False]
    assert repeated_share([1, 2, 1, 2, 3], 2) == pytest.approx(1 - 3 / 4)
    assert repeated_tokens([1], 2) == [False]
    assert repeated_share([1], 2) == 0


def test_a_stream_keeps_its_own_discount() -> None:
    stream = discounted_stream(numbers(0, -0.05, 0, -0.05), 0.99)
    returns = [-0.05 * 0.99 - 0.05 * 0.99**3, -0.05 - 0.05 * 0.99**2, -0.05 * 0.99, -0.05]
    assert suffix_sums(stream.tolist()) == pytest.approx(returns)


def test_reward_scaling() -> None:
    data = data_scale([0.2, 0.4, 0.6])
    model = model_scale([1.0, 1.2, 0.8, 5.0], 4.0)
    assert data == pytest.approx([0.918399, 1.0, 1.078453], abs=TOLERANCE)
    assert model == pytest.approx(0.829997, abs=TOLERANCE)
    alpha = [scale * model for scale in data]
    assert alpha == pytest.approx([0.762268, 0.829997, 0.895112], abs=TOLERANCE)
    advantages = alpha[0] * grpo(numbers(1, 0, 0, 1), ONE_GROUP, ddof=0, eps=0.0)
    assert advantages.tolist() == pytest.approx([0.762268, -0.762268, -0.762268, 0.762268], abs=TOLERANCE)
    assert model_scale([0.0, 4.0], 1.0) == 1.0  # both lie too far from their mean


def test_similarity_of_clauses() -> None:
    """By hand: of the six words of "the sky is blue" and "the sea is green" two are in both."""
    assert similarity("The sky is blue. Grass is green!", "grass is green; the sky is blue") == 1.0
    assert similarity("the sea is green", "the sky is blue") == pytest.approx(2 / 6)
    assert similarity("", "the sky") == 0
    assert similarity("the sky", " ... ") == 0
