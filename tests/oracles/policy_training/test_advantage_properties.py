"""What must hold of advantages for any rewards: identities between estimators, and by-hand statistics."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from assay_policy_training.core.batch import EQUAL_RANGE, dr_grpo, group_moments
from assay_policy_training.plugins.estimators.canon import canon, high_half
from assay_policy_training.plugins.estimators.group_relative import lite_ppo, ngrpo, opo, pass_at_k
from assay_policy_training.plugins.estimators.optimal_token_baseline import optimal_token_advantage
from assay_policy_training.plugins.modulators.effective_rank import effective_rank, with_bonus
from assay_policy_training.plugins.modulators.future_kl import future_sum, others_mean
from assay_policy_training.plugins.modulators.steps import empg

REWARD = st.integers(-20, 20).map(lambda tenths: tenths / 10)


@st.composite
def grouped(draw: st.DrawFn, *, largest: float = 2.0) -> tuple[Tensor, Tensor]:
    """Rewards [B] and groups [B] of 1 to 12 rows in up to 3 groups, in any order."""
    rows = draw(st.lists(st.tuples(REWARD, st.integers(0, 2)), min_size=1, max_size=12))
    names: dict[int, int] = {}
    group = torch.tensor([names.setdefault(name, len(names)) for _, name in rows])
    return torch.tensor([min(reward, largest) for reward, _ in rows], dtype=torch.float64), group


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected.double(), atol=1e-9, rtol=1e-9)


@given(grouped(largest=1.0))
def test_ngrpo_is_the_group_with_one_row_more(rows: tuple[Tensor, Tensor]) -> None:
    reward, group = rows
    found = ngrpo(reward, group, r_max=1.0)
    for row in range(len(reward)):
        members = reward[group == group[row]]
        wider = torch.cat([members, torch.ones(1, dtype=torch.float64)])
        if len(members) < 2 or wider.max() - wider.min() < EQUAL_RANGE:
            assert found[row] == 0
        else:
            assert float(found[row]) == pytest.approx(float((reward[row] - wider.mean()) / (wider.std() + 1e-6)))


@given(grouped(), st.integers(1, 50))
def test_opo_of_equal_lengths_is_dr_grpo(rows: tuple[Tensor, Tensor], length: int) -> None:
    reward, group = rows
    same(opo(reward, torch.full((len(reward),), length), group), dr_grpo(reward, group))


@given(grouped(), st.floats(0.01, 2.0))
def test_the_token_baseline_of_equal_energy_is_dr_grpo(rows: tuple[Tensor, Tensor], energy: float) -> None:
    """Up to the eps in its denominator, where all rows have one token."""
    reward, group = rows
    mask = torch.ones(len(reward), 1, dtype=torch.bool)
    found = optimal_token_advantage(reward[:, None], torch.full((len(reward), 1), energy), mask, group, eps=1e-15)
    torch.testing.assert_close(found[:, 0], dr_grpo(reward, group), atol=1e-6, rtol=0)


@given(grouped(), st.randoms(use_true_random=False))
def test_canon_of_even_groups_is_dr_grpo_for_any_metric(rows: tuple[Tensor, Tensor], random: object) -> None:
    reward, group = rows
    reward, group = torch.cat([reward, reward + 0.3]), torch.cat([group, group])  # every group even
    metric = torch.tensor([random.random() for _ in reward])  # type: ignore[attr-defined]
    high = high_half(metric, group, torch.ones(len(reward), dtype=torch.bool))
    same(canon(reward, group, high, mu=0.5), dr_grpo(reward, group))


@given(grouped())
def test_lite_ppo_has_a_deviation_of_one(rows: tuple[Tensor, Tensor]) -> None:
    reward, group = rows
    found = lite_ppo(reward, group, eps=0.0)
    count, mean, _, _ = group_moments(found, group, ddof=0)
    assert mean.abs().max() < 1e-9
    if found.any():
        assert float(found[count > 1].std()) == pytest.approx(1.0)


@given(grouped())
def test_pass_at_k_pays_one_row_a_group(rows: tuple[Tensor, Tensor]) -> None:
    reward, group = rows
    found = pass_at_k(reward, group)
    assert (found >= 0).all()
    for number in range(int(group.max()) + 1):
        paid = found[group == number]
        assert int((paid > 0).sum()) <= 1
        if paid.any():
            best, second = reward[group == number].topk(2).values
            assert float(paid.max()) == pytest.approx(float(best - second))


@given(grouped(), st.floats(0.0, 10.0), st.floats(1.01, 5.0))
def test_a_bonus_changes_no_sign(rows: tuple[Tensor, Tensor], extra: float, kappa: float) -> None:
    adv = dr_grpo(*rows)
    found = with_bonus(adv, torch.full_like(adv, extra), kappa=kappa)
    assert torch.equal(found.sign(), adv.sign())
    assert (found >= adv).all()


@given(grouped(), st.integers(1, 4))
def test_empg_without_modulation_only_centres(rows: tuple[Tensor, Tensor], width: int) -> None:
    adv = dr_grpo(*rows)[:, None].expand(-1, width)
    mask = torch.ones(len(adv), width, dtype=torch.bool)
    found = empg(adv, torch.rand(len(adv), width), mask, None, k=0.0, k_next=1.0, zeta=0.0)
    same(found, adv - adv[:, 0].mean())


@given(st.integers(2, 9), st.integers(1, 9), st.floats(0.5, 20.0))
def test_effective_rank_is_bounded_and_blind_to_scale(states: int, width: int, scale: float) -> None:
    draw = torch.Generator().manual_seed(states * 10 + width)
    some = torch.randn(states, width, generator=draw, dtype=torch.float64)
    rank = effective_rank(some)
    assert 1 - 1e-6 <= rank <= min(states - 1, width) + 1e-6
    assert effective_rank(scale * some + 3.0) == pytest.approx(rank, rel=1e-5)


@given(grouped(), st.integers(1, 5))
def test_the_future_of_the_others_balances(rows: tuple[Tensor, Tensor], width: int) -> None:
    """F minus the others' mean sums to 0 over the rows of a group that have a token there."""
    reward, group = rows
    kl = reward.abs()[:, None].expand(-1, width)
    mask = torch.ones(len(reward), width, dtype=torch.bool)
    future = future_sum(kl, mask)
    rest = future - others_mean(future, mask, group, torch.ones(len(reward), dtype=torch.bool))
    count, mean, _, _ = group_moments(rest[:, 0], group, ddof=0)
    assert not (mean[count > 1].abs() > 1e-9).any()
