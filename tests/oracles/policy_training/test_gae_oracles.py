"""Reference oracles [GAE], [GAE obs-mask], [EGAE], [R++], [R++-baseline], and what holds of them for any batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from token_rows import batch_of
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.plugins.estimators.gae import Gae, ReturnsToGo, gae, returns_to_go
from assay_policy_training.plugins.estimators.group_relative import DrGrpo
from assay_policy_training.plugins.modulators.whitening import ClipAdvantage, Whitening, whiten

TOLERANCE = 1e-5
REWARD = torch.tensor([[0.0, 0.0, 1.0]])
VALUES = torch.tensor([[0.5, 0.6, 0.7]])


def row(values: list[float]) -> Tensor:
    return torch.tensor([values])


def every(matrix: Tensor) -> Tensor:
    return torch.ones(matrix.shape, dtype=torch.bool)


def test_gae() -> None:
    found = gae(REWARD, VALUES, every(REWARD), gamma=1.0, lam=0.95)
    assert found[0].tolist() == pytest.approx([0.46575, 0.385, 0.3], abs=TOLERANCE)
    assert (found + VALUES)[0].tolist() == pytest.approx([0.96575, 0.985, 1.0], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("ddof", "expected"), [(1, [0.991344, 0.017092, -1.008436]), (0, [1.214143, 0.020933, -1.235076])]
)
def test_whitened_gae(ddof: int, expected: list[float]) -> None:
    found = whiten(gae(REWARD, VALUES, every(REWARD), gamma=1.0, lam=0.95), every(REWARD), ddof=ddof)
    assert found[0].tolist() == pytest.approx(expected, abs=TOLERANCE)


def test_gae_carries_over_tokens_that_are_not_the_policys() -> None:
    mask = torch.tensor([[True, False, True]])
    found = gae(REWARD, VALUES, mask, gamma=1.0, lam=0.95)
    assert found[0].tolist() == pytest.approx([0.485, 0.0, 0.3], abs=TOLERANCE)


def test_egae_takes_the_last_value_once_more() -> None:
    values, nothing = row([0.2, 0.4, 0.5]), torch.zeros(1, 3)
    found = gae(nothing, values, every(values), gamma=1.0, lam=0.95, bootstrap=torch.tensor([True]))
    assert found[0].tolist() == pytest.approx([0.295, 0.1, 0.0], abs=TOLERANCE)
    wrong = gae(nothing, values, every(values), gamma=1.0, lam=0.95)
    assert wrong[0].tolist() == pytest.approx([-0.15625, -0.375, -0.5], abs=TOLERANCE)


def test_reinforce_pp() -> None:
    reward = torch.tensor([[-0.01, -0.02, 0.97], [-0.03, 0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True, True], [True, True, False]])
    returns = returns_to_go(reward, mask, gamma=1.0)
    assert returns.flatten().tolist() == pytest.approx([0.94, 0.95, 0.97, -0.03, 0.0, 0.0], abs=TOLERANCE)
    assert whiten(returns, mask).flatten().tolist() == pytest.approx(
        [0.70487, 0.723717, 0.761411, -1.123269, -1.066729, 0.0], abs=TOLERANCE
    )


def test_reinforce_pp_of_a_batch() -> None:
    """The same through the plug-ins: outcome on the last token, penalties as dense rewards."""
    mask = torch.tensor([[True, True, True], [True, True, False]])
    dense = torch.tensor([[-0.01, -0.02, -0.03], [-0.03, 0.0, 9.0]], dtype=torch.float64)
    batch = batch_of(mask, [1.0, 0.0], dense=dense)
    adv, _ = ReturnsToGo()(batch)
    found = Whitening().modulate(batch.with_(adv=adv))
    assert found.flatten().tolist() == pytest.approx(
        [0.70487, 0.723717, 0.761411, -1.123269, -1.066729, 0.0], abs=TOLERANCE
    )


def test_reinforce_pp_baseline() -> None:
    mask = torch.tensor([[True, True]] * 4 + [[True, False]] * 4)
    batch = batch_of(mask, [1, 0, 0, 1, 1, 1, 1, 0], ["a"] * 4 + ["b"] * 4)
    adv, _ = DrGrpo()(batch)
    assert adv[:, 0].tolist() == pytest.approx([0.5, -0.5, -0.5, 0.5, 0.25, 0.25, 0.25, -0.75], abs=TOLERANCE)
    found = Whitening().modulate(batch.with_(adv=adv))
    expected = [1.0, -1.0, -1.0, 1.0, 0.5, 0.5, 0.5, -1.5]
    assert found[:, 0].tolist() == pytest.approx(expected, abs=TOLERANCE)
    assert not found[4:, 1].any()


@given(
    mask=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
    seed=st.integers(0, 999),
)
def test_gae_is_the_discounted_sum_over_a_rows_own_tokens(
    mask: list[list[bool]], gamma: float, lam: float, seed: int
) -> None:
    """A_t = sum_k (gamma lam)^k delta_(t+k), with every token that is not the policy's taken out of the row."""
    own = torch.tensor(mask)
    generator = torch.Generator().manual_seed(seed)
    reward, values = torch.randn(2, *own.shape, dtype=torch.float64, generator=generator)
    goes_on = torch.rand(len(own), generator=generator) < 0.5
    found = gae(reward, values, own, gamma=gamma, lam=lam, bootstrap=goes_on)
    assert not found[~own].any()
    for row in range(len(own)):
        r, v = reward[row][own[row]].tolist(), values[row][own[row]].tolist()
        after = [*v[1:], v[-1] if goes_on[row] else 0.0] if v else []
        deltas = [a + gamma * b - c for a, b, c in zip(r, after, v, strict=True)]
        expected = [sum((gamma * lam) ** k * d for k, d in enumerate(deltas[t:])) for t in range(len(deltas))]
        assert found[row][own[row]].tolist() == pytest.approx(expected, abs=1e-9)


def test_missing_rewards_take_no_part() -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    values = torch.tensor([[0.5, 0.6], [9.0, 9.0], [0.1, 0.2]])
    batch = batch_of(mask, [1.0, torch.nan, 0.0], values=values)
    adv, returns = Gae()(batch)
    assert not adv[1].any()
    assert not returns[1].any()
    others = batch.select([0, 2])
    assert torch.equal(adv[[0, 2]], Gae()(others)[0])
    whitened = Whitening().modulate(batch.with_(adv=adv))
    assert torch.equal(whitened[[0, 2]], Whitening().modulate(others.with_(adv=adv[[0, 2]])))
    assert not whitened[1].any()


@pytest.mark.parametrize(
    ("bootstrap", "expected"),
    [("none", [False] * 3), ("unfinished", [True, False, False]), ("cut", [True, True, False])],
)
def test_which_rows_are_bootstrapped(bootstrap: str, expected: list[bool]) -> None:
    mask = torch.ones(3, 3, dtype=torch.bool)
    finished = torch.tensor([False, False, True])
    batch = batch_of(
        mask,
        [torch.nan, 0.0, 0.0],
        values=row([0.2, 0.4, 0.5]).repeat(3, 1),
        finished=finished,
        truncated=torch.tensor([False, True, False]),
        unfinished=torch.tensor([True, False, False]),
    )
    adv, _ = Gae(bootstrap=bootstrap)(batch)
    for found, on in zip(adv.tolist(), expected, strict=True):
        wanted = [0.295, 0.1, 0.0] if on else [-0.15625, -0.375, -0.5]
        assert found == pytest.approx(wanted, abs=TOLERANCE)


def test_an_unfinished_row_earns_its_dense_rewards() -> None:
    mask = torch.ones(2, 2, dtype=torch.bool)
    dense = torch.full((2, 2), -0.1, dtype=torch.float64)
    batch = batch_of(mask, [torch.nan, torch.nan], dense=dense, unfinished=torch.tensor([True, False]))
    assert batch.token_reward.tolist() == [[-0.1, -0.1], [0.0, 0.0]]


def test_critics_own_lambda_gives_monte_carlo_returns() -> None:
    batch = batch_of(every(REWARD), [1.0], values=VALUES)
    adv, returns = Gae(critic_lam=1.0)(batch)
    assert adv[0].tolist() == pytest.approx([0.46575, 0.385, 0.3], abs=TOLERANCE)
    assert returns[0].tolist() == pytest.approx([1.0, 1.0, 1.0], abs=TOLERANCE)


@pytest.mark.parametrize("ddof", [0, 1])
def test_whitened_tokens_have_mean_0_and_variance_1(ddof: int) -> None:
    generator = torch.Generator().manual_seed(0)
    values, mask = torch.randn(5, 7, generator=generator) * 3 + 2, torch.rand(5, 7, generator=generator) < 0.6
    found = whiten(values, mask, ddof=ddof)[mask]
    assert float(found.mean()) == pytest.approx(0.0, abs=1e-9)
    assert float(found.var(correction=ddof)) == pytest.approx(1.0, abs=1e-6)
    order = torch.randperm(5, generator=generator)
    torch.testing.assert_close(whiten(values[order], mask[order], ddof=ddof), whiten(values, mask, ddof=ddof)[order])


def test_whitening_over_the_trained_tokens_only() -> None:
    mask = torch.ones(1, 4, dtype=torch.bool)
    fresh = torch.tensor([[False, False, True, True]])
    batch = batch_of(mask, [1.0], loss_mask=fresh, adv=row([50.0, 60.0, 1.0, 3.0]))
    found = Whitening(tokens="trained").modulate(batch)
    assert found[0].tolist() == pytest.approx([0.0, 0.0, -(0.5**0.5), 0.5**0.5], abs=TOLERANCE)


def test_one_token_alone_has_no_variance() -> None:
    assert whiten(row([3.0]), torch.tensor([[True]])).tolist() == [[0.0]]


def test_clipped_advantages() -> None:
    batch = batch_of(every(REWARD), [1.0], adv=row([-7.0, 0.5, 7.0]))
    assert ClipAdvantage(limit=2.0).modulate(batch).tolist() == [[-2.0, 0.5, 2.0]]


@pytest.mark.parametrize(
    ("plugin", "settings"),
    [
        (Gae, {"lam": 1.5}),
        (Gae, {"bootstrap": "always"}),
        (ReturnsToGo, {"gamma": -0.1}),
        (Whitening, {"ddof": 2}),
        (Whitening, {"tokens": "all"}),
        (ClipAdvantage, {"limit": 0.0}),
    ],
)
def test_settings_out_of_range(plugin: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=next(iter(settings))):
        plugin(**settings)
