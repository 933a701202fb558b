"""Ensembles (arXiv 2310.02743) and weight averaging (WARM, arXiv 2401.12187) against the reference numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_serving.engines.aggregation import MemberAggregation

R = np.array([[1, 5, 3, 4, 2], [2.5, 2.6, 2.4, 2.5, 2.5]], dtype=float)


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        (MemberAggregation("mean"), [3.0, 2.5]),
        (MemberAggregation("min"), [1.0, 2.4]),
        (MemberAggregation("uwo"), [2.0, 2.498]),
        (MemberAggregation("uwo", variance="unbiased"), [1.75, 2.4975]),
        (MemberAggregation("lower_bound"), [3.0 - 0.5 * 2.0**0.5, 2.5 - 0.5 * 0.004**0.5]),
        (MemberAggregation("kl_robust", beta=0.1), [1.160939, 2.480342]),
        (MemberAggregation("kl_robust", beta=1.0), [2.157524, 2.498]),
        (MemberAggregation("kl_robust", beta=100.0), [2.99, 2.49998]),
    ],
)
def test_card_A10(aggregation: MemberAggregation, expected: list[float]) -> None:
    assert aggregation.combined(R).tolist() == pytest.approx(expected, abs=1e-6)


def test_card_A10_variances() -> None:
    assert (MemberAggregation("mean").spread(R) ** 2).tolist() == pytest.approx([2.0, 0.004])
    assert (MemberAggregation("mean", variance="unbiased").spread(R) ** 2).tolist() == pytest.approx([2.5, 0.005])


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3), st.floats(0.05, 50))
def test_the_robust_family_lies_between_minimum_and_mean(row: list[float], beta: float) -> None:
    rewards = np.array([row])
    found = MemberAggregation("kl_robust", beta=beta).combined(rewards)[0]
    assert min(row) - 1e-9 <= found <= np.mean(row) + 1e-9
    assert MemberAggregation("kl_robust", beta=1e7).combined(rewards)[0] == pytest.approx(np.mean(row), abs=1e-3)
    shifted = MemberAggregation("kl_robust", beta=beta).combined(rewards + 2.0)[0]
    assert shifted == pytest.approx(found + 2.0, abs=1e-8)
