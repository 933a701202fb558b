"""The reference numbers of prompt sources, hints and replay: [DUMP], [GAIN], [SEELE], [RECAP], [Guide]."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_policy_training.plugins.contexts.hints import hint_of
from assay_policy_training.plugins.contexts.seele import SuccessCurve, bisected_share, fit_curve, next_share
from assay_policy_training.plugins.objectives.guide import shaped_ratio
from assay_policy_training.plugins.prompts.dump import softmax, upper_bounds
from assay_policy_training.plugins.prompts.gain_rl import centre_shift
from assay_policy_training.plugins.replay.objectives import movement, objective_weights

TOLERANCE = 1e-5
CURVE = SuccessCurve(b=0.1, k=10.0, mu=-0.4)


def test_dump_bounds_and_probabilities() -> None:
    bounds = upper_bounds([300, 100, 50], [0.2, 0.6, 0.4])
    assert bounds == pytest.approx([0.401514, 0.947878, 0.889556], abs=TOLERANCE)
    assert softmax(bounds, 0.1) == pytest.approx([0.002713, 0.640066, 0.357221], abs=TOLERANCE)


def test_gain_shift() -> None:
    found = centre_shift(0.6, 0.1, pace=500, alpha=2, beta=0.5, limit=1000)
    assert found == pytest.approx(197.37532, abs=TOLERANCE)


@pytest.mark.parametrize(("acc", "angle", "expected"), [(0.0, -1.0, 0.0), (1.0, 10.0, 880.797)])
def test_gain_shift_never_goes_back_nor_past_its_limit(acc: float, angle: float, expected: float) -> None:
    assert centre_shift(acc, angle, pace=500, alpha=2, beta=0.5, limit=1000) == pytest.approx(expected, abs=1e-2)
    assert centre_shift(1.0, 10.0, pace=500, alpha=2, beta=0.5, limit=300) == 300


def test_accuracy_curve_and_its_inverse() -> None:
    assert CURVE.accuracy(0.2) == pytest.approx(0.207283, abs=TOLERANCE)
    assert CURVE.accuracy(0.5) == pytest.approx(0.757953, abs=TOLERANCE)
    assert CURVE.share(0.5) == pytest.approx(0.377686, abs=TOLERANCE)
    assert CURVE.share(0.05) is None, "below what guessing gives"


def test_fit_finds_the_curve_its_points_come_from() -> None:
    shares = [0.0, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0]
    found = fit_curve(shares, [CURVE.accuracy(share) for share in shares], below=0.5)
    assert found is not None
    assert (found.b, found.k, found.mu) == pytest.approx((0.1, 10.0, -0.4), abs=1e-3)


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([0, 0.25, 0.5, 1])), min_size=1)
)
def test_next_share_is_a_share_whatever_the_points(points: list[tuple[float, float]]) -> None:
    found = next_share([share for share, _ in points], [accuracy for _, accuracy in points], 0.5)
    assert 0 <= found <= 1
    assert math.isfinite(found)


def test_few_points_halve_the_interval() -> None:
    assert fit_curve([0.5, 0.5], [0.2, 0.4], below=0.5) is None
    assert bisected_share([0.5], [0.2], 0.5) == 0.75
    assert bisected_share([0.5, 0.75], [0.2, 0.9], 0.5) == 0.625
    assert bisected_share([0.5], [1.0], 0.5) == 0.25


def test_recap_weights() -> None:
    s = [movement(0.2, 0.2, 0.01), movement(0.9, 1.0, 0.3)]
    assert s == pytest.approx([1.025, 1.057895], abs=TOLERANCE)
    assert objective_weights(s, 5.0) == pytest.approx([0.996711, 1.003289], abs=TOLERANCE)
    assert objective_weights(s, 0.5) == pytest.approx([0.967117, 1.032883], abs=TOLERANCE)
    assert math.isfinite(movement(0.3, 0.0, 0.1)), "a mean of 0 does not explode"


def test_guided_ratio_and_its_gradient() -> None:
    log_ratio = torch.tensor([0.05, 0.5, 2.0], dtype=torch.float64).log().requires_grad_()
    found = shaped_ratio(log_ratio, 0.1)
    assert found.tolist() == pytest.approx([0.333333, 0.833333, 0.952381], abs=TOLERANCE)
    (gradient,) = torch.autograd.grad(found.sum(), log_ratio)
    r = log_ratio.detach().exp()
    torch.testing.assert_close(gradient, 0.1 * r / (r + 0.1) ** 2)


def test_hint_lengths() -> None:
    assert [len(hint_of("12345678", share)) for share in (0.25, 0.5, 0.75)] == [2, 4, 6]
    with pytest.raises(BadInputError, match=r"contexts\.share"):
        hint_of("1", 1.5)
