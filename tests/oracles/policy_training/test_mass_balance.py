"""BroRL's one-step balance: the reference numbers [BroRL], and the formula against the step itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tabular.mass_balance import balance, unsampled_squares

TOLERANCE = 1e-5
P = np.array([0.3, 0.1, 0.05, 0.25, 0.2, 0.1])
CORRECT = np.array([True, True, True, False, False, False])
SAMPLED = np.array([True, False, False, True, True, False])


def test_reference_numbers() -> None:
    found = balance(P, CORRECT, SAMPLED)
    assert [found.baseline, found.right, found.wrong] == pytest.approx([-0.15, 0.09, 0.1025], abs=TOLERANCE)
    assert [found.right_unsampled, found.wrong_unsampled] == pytest.approx([0.0125, 0.01], abs=TOLERANCE)
    assert found.change == pytest.approx(0.096488, abs=TOLERANCE)


@pytest.mark.parametrize(("samples", "missed"), [(16, 0.922931), (512, 0.07681)])
def test_what_is_missed(samples: int, missed: float) -> None:
    assert unsampled_squares(np.array([0.005]), samples) / 0.005**2 == pytest.approx(missed, abs=TOLERANCE)


@given(st.integers(0, 2**32 - 1))
def test_formula_is_the_first_order_of_a_step(seed: int) -> None:
    """Softmax logits moved by (step/N) p (R - S_R), with R = 0 for what was not sampled."""
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.ones(6))
    correct, sampled = generator.random(6) < 0.5, generator.random(6) < 0.5
    found = balance(p, correct, sampled)
    step = 1e-6
    rewards = np.where(correct, 1.0, -1.0) * sampled
    moved = p * np.exp(step * p * (rewards - found.baseline))
    gained = (moved[correct].sum() / moved.sum() - p[correct].sum()) / step
    assert found.change == pytest.approx(gained, abs=1e-5)
    assert found.from_sampled >= -1e-12, "what was sampled only helps"
    shrinking = [unsampled_squares(p, samples) for samples in (1, 16, 512)]
    assert shrinking == sorted(shrinking, reverse=True)
