"""Ties (Rao-Kupper, Davidson) and ranked lists (Plackett-Luce) against their forms in strengths, and by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay_rm_training.objectives import lists, pair

F64 = torch.float64


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=F64)


@given(st.floats(-8, 8), st.floats(-8, 8), st.floats(1.01, 30))
def test_rao_kupper_in_strengths(first: float, second: float, theta: float) -> None:
    """P(i beats j) = p_i / (p_i + theta p_j), P(tie) = (theta^2 - 1) p_i p_j / ((p_i + theta p_j)(p_j + theta p_i))."""
    a, b = math.exp(first), math.exp(second)
    expected = [
        a / (a + theta * b),
        (theta**2 - 1) * a * b / ((a + theta * b) * (b + theta * a)),
        b / (b + theta * a),
    ]
    found = pair.rao_kupper(scalar(first - second)[None], scalar(math.log(math.log(theta)))).exp()[0]
    assert found.tolist() == pytest.approx(expected, rel=1e-8)
    assert found.sum().item() == pytest.approx(1)


@given(st.floats(-8, 8), st.floats(-8, 8), st.floats(0.01, 30))
def test_davidson_in_strengths(first: float, second: float, nu: float) -> None:
    """p_i : nu sqrt(p_i p_j) : p_j."""
    a, b = math.exp(first), math.exp(second)
    total = a + b + nu * math.sqrt(a * b)
    found = pair.davidson(scalar(first - second)[None], scalar(math.log(nu))).exp()[0]
    assert found.tolist() == pytest.approx([a / total, nu * math.sqrt(a * b) / total, b / total], rel=1e-8)


@pytest.mark.parametrize("model", [pair.rao_kupper, pair.davidson])
def test_without_ties_both_are_bradley_terry(model: object) -> None:
    d = torch.linspace(-5, 5, 11, dtype=F64)
    assert callable(model)
    rare = model(d, scalar(-25.0))
    assert torch.allclose(-rare[:, 0], pair.bradley_terry(d), atol=1e-8)
    assert torch.allclose(-rare[:, 2], pair.bradley_terry(-d), atol=1e-8)


@pytest.mark.parametrize("model", [pair.rao_kupper, pair.davidson])
def test_ties_are_symmetric_and_likeliest_among_equals(model: object) -> None:
    d = torch.linspace(-5, 5, 11, dtype=F64)
    assert callable(model)
    probabilities = model(d, scalar(0.2))
    assert torch.allclose(probabilities, probabilities.flip(0, 1), atol=1e-12)
    assert probabilities[:, 1].argmax().item() == 5


@pytest.mark.parametrize(
    ("model", "start"), [(pair.rao_kupper, pair.rao_kupper_start), (pair.davidson, pair.davidson_start)]
)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_the_parameter_starts_at_the_share_of_ties(model: object, start: object, share: float) -> None:
    assert callable(model)
    assert callable(start)
    assert model(scalar(0.0)[None], scalar(start(share))).exp()[0, 1].item() == pytest.approx(share)
    assert math.isfinite(start(0.0))
    assert math.isfinite(start(1.0))


def test_outcomes_pick_their_probability() -> None:
    table = torch.log(torch.tensor([[0.5, 0.3, 0.2]] * 3, dtype=F64))
    found = pair.outcome_loss(table, torch.tensor([1.0, 0.5, 0.0], dtype=F64))
    assert found.tolist() == pytest.approx([-math.log(p) for p in (0.5, 0.3, 0.2)])


@given(st.floats(-20, 20), st.floats(-20, 20))
def test_a_list_of_two_is_bradley_terry(better: float, worse: float) -> None:
    rewards = torch.tensor([worse, better], dtype=F64)
    expected = pair.bradley_terry(scalar(better - worse)).item()
    assert lists.plackett_luce(rewards, [2, 1]).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert lists.all_pairs(rewards, [2, 1]).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def by_hand(rewards: list[float], order: tuple[int, ...]) -> float:
    """P(order), by drawing without replacement."""
    strengths = [math.exp(rewards[i]) for i in order]
    return math.prod(s / sum(strengths[k:]) for k, s in enumerate(strengths))


def test_plackett_luce_by_hand() -> None:
    """Strengths 3, 2, 1: 3/6 * 2/3 = 1/3."""
    rewards = torch.log(torch.tensor([3.0, 2.0, 1.0], dtype=F64))
    assert lists.plackett_luce(rewards, [1, 2, 3]).item() == pytest.approx(math.log(3))
    assert lists.plackett_luce(rewards, [1, 2, 2]).item() == pytest.approx(math.log(2))  # only who is best
    assert lists.plackett_luce(rewards, [1, 1, 2]).item() == pytest.approx(-math.log(1 / 3 + 2 / 6 * 3 / 4))


values = st.lists(st.floats(-4, 4), min_size=2, max_size=5)


@given(values, st.data())
def test_equal_ranks_are_the_sum_over_their_orders(rewards: list[float], data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.integers(1, 3), min_size=len(rewards), max_size=len(rewards)))
    agreeing = [
        order
        for order in itertools.permutations(range(len(ranks)))
        if all(ranks[a] <= ranks[b] for a, b in itertools.pairwise(order))
    ]
    expected = -math.log(sum(by_hand(rewards, order) for order in agreeing))
    found = lists.plackett_luce(torch.tensor(rewards, dtype=F64), ranks).item()
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-9)


@given(values)
def test_all_rankings_together_are_certain(rewards: list[float]) -> None:
    tensor = torch.tensor(rewards, dtype=F64)
    total = sum(
        math.exp(-lists.plackett_luce(tensor, ranks).item())
        for ranks in itertools.permutations(range(1, len(rewards) + 1))
    )
    assert total == pytest.approx(1)


@given(values, st.floats(-30, 30), st.randoms())
def test_lists_know_neither_offset_nor_order_of_rows(rewards: list[float], offset: float, random: object) -> None:
    ranks = [min(i, 2) for i in range(1, len(rewards) + 1)]
    moved = list(zip([r + offset for r in rewards], ranks, strict=True))
    random.shuffle(moved)  # type: ignore[attr-defined]
    for loss in (lists.plackett_luce, lists.all_pairs):
        before = loss(torch.tensor(rewards, dtype=F64), ranks).item()
        after = loss(torch.tensor([r for r, _ in moved], dtype=F64), [k for _, k in moved]).item()
        assert after == pytest.approx(before, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("ranks", [[1, 2, 3, 4, 5], [2, 1, 1, 3, 3], [1, 1, 1, 2, 3], [1, 1, 1, 1, 1]])
def test_gradients_of_lists(ranks: list[int]) -> None:
    rewards = torch.randn(5, dtype=F64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    assert torch.autograd.gradcheck(lambda r: lists.plackett_luce(r, ranks), (rewards,))
    assert torch.autograd.gradcheck(lambda r: lists.all_pairs(r, ranks), (rewards,))


def test_a_list_of_equals_says_nothing() -> None:
    rewards = torch.randn(3, dtype=F64, requires_grad=True)
    loss = lists.plackett_luce(rewards, [1, 1, 1])
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == 0
    assert rewards.grad is not None
    assert not rewards.grad.any()
    assert lists.stages([1, 1, 1]) == 0
    assert lists.stages([1, 2, 3]) == 2
    assert lists.stages([1, 2, 2, 2]) == 1


def test_too_many_equals_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 8"):
        lists.plackett_luce(torch.zeros(10), [1] * 9 + [2])


def test_far_apart_rewards_stay_finite() -> None:
    rewards = torch.tensor([-400.0, 0.0, 400.0], requires_grad=True)
    loss = lists.plackett_luce(rewards, [1, 1, 2])
    loss.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss)
    assert rewards.grad is not None
    assert torch.isfinite(rewards.grad).all()
