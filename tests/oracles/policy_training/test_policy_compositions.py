"""Every number of the reference oracles of rewards composed of parts, and the memory of those that learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch

from assay_policy_training.plugins.compositions.constrained import gradients, squash
from assay_policy_training.plugins.compositions.dynamic import hypervolume, influence, multiplier, updated_weights
from assay_policy_training.plugins.compositions.gated import ConsistencyReward, GatedAccumulation, SoftPenalties
from assay_policy_training.plugins.compositions.maxmin import worst_group
from assay_policy_training.plugins.compositions.weighted import Directional, direction_text
from assay_policy_training.plugins.estimators.constrained import mixture

TOLERANCE = 1e-5


def parts(**columns: Sequence[float]) -> Mapping[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in columns.items()}


def test_gated_accumulation() -> None:
    three = GatedAccumulation(("a", "b", "c"), {"a": 0.0, "b": 0.4})
    found = three(parts(a=[1, 1, 0], b=[0.5, 0.3, 0.9], c=[0.3, 0.3, 0.9]))
    assert found.tolist() == pytest.approx([1.8, 1.3, 0])
    two = GatedAccumulation(("long", "immediate"), {"long": 0.5})
    assert two(parts(long=[0.3, 0.8], immediate=[0.4, 0.4])).tolist() == pytest.approx([0.3, 1.2])


def test_consistency_reward() -> None:
    found = ConsistencyReward("acc", "led", "form")(
        parts(form=[1, 1, 1, 1, 0], acc=[1, 1, 1, 0, 1], led=[1, 0, -1, 1, 1])
    )
    assert found.tolist() == pytest.approx([2.0, 1.5, 1.0, 0.5, 1.5])


def test_soft_penalties_multiply() -> None:
    """By hand."""
    found = SoftPenalties("r", ("p", "q"))(parts(r=[2.0, 2.0], p=[1.0, 0.5], q=[1.0, 0.5]))
    assert found.tolist() == [2.0, 0.5]
    scored = SoftPenalties("r", ("p",), scale="sigmoid")(parts(r=[2.0, 2.0], p=[0.0, 2.0]))
    assert scored.tolist() == pytest.approx([1.0, 1.761594])


@pytest.mark.parametrize(
    ("kind", "weights", "mixed", "slopes", "after"),
    [
        ("at_least", [0.622459, 0.268941], 0.266269, [0.037601, -0.027132], [0.49624, -0.997287]),
        ("equal", [0.462117, -0.761594], 0.383019, [0.125832, -0.057956], [0.487417, -0.994204]),
    ],
)
def test_constrained(kind: str, weights: list[float], mixed: float, slopes: list[float], after: list[float]) -> None:
    multipliers = [0.5, -1.0]
    assert [squash(value, kind) for value in multipliers] == pytest.approx(weights, abs=TOLERANCE)
    advantages = [torch.tensor(1.0), torch.tensor(-0.5)]
    found = mixture(advantages, torch.tensor(-0.2), [squash(value, kind) for value in multipliers])
    assert float(found) == pytest.approx(mixed, abs=TOLERANCE)
    slope = gradients(multipliers, [0.60, 0.10], [0.44, 0.238], kind)
    assert slope == pytest.approx(slopes, abs=TOLERANCE)
    stepped = [value - 0.1 * gradient for value, gradient in zip(multipliers, slope, strict=True)]
    assert stepped == pytest.approx(after, abs=TOLERANCE)


def test_hypervolume() -> None:
    front, origin = [[0.5, 0.3], [0.3, 0.6]], [0.0, 0.0]
    assert hypervolume(front, origin) == pytest.approx(0.24)
    assert hypervolume([*front, [0.45, 0.5]], origin) == pytest.approx(0.27)
    assert multiplier(0.03) == pytest.approx(0.544987, abs=TOLERANCE)
    assert hypervolume([*front, [0.2, 0.2]], origin) == pytest.approx(0.24)
    assert multiplier(0.0) == multiplier(-1.0) == 0.5


def test_hypervolume_in_any_order_and_dimension() -> None:
    assert hypervolume([[0.3, 0.6], [0.5, 0.3]], [0, 0]) == pytest.approx(0.24)
    assert hypervolume([[2.0, 3.0, 4.0]], [1.0, 1.0, 1.0]) == pytest.approx(6.0)
    assert hypervolume([[1, 1, 2], [1, 2, 1], [2, 1, 1]], [0, 0, 0]) == pytest.approx(4.0)  # a cube and three slabs
    assert hypervolume([[0.5, -3.0]], [0, 0]) == 0  # below the reference


def test_gradient_weights() -> None:
    found = influence(torch.tensor([[1.0, 0.0], [0.5, 0.5], [-1.0, 0.2]], dtype=torch.float64))
    assert found.tolist() == pytest.approx([0.5, 0.6, -0.36])
    assert updated_weights([1 / 3] * 3, found.tolist(), 1e-6 / 1e-5) == pytest.approx(
        [0.341572, 0.345004, 0.313424], abs=TOLERANCE
    )
    assert updated_weights([0.2, 0.8], [3.0, 3.0], 0.1) == pytest.approx([0.2, 0.8])


def test_the_worst_group_decides() -> None:
    policies = [(0.95, 0.2), (0.6, 0.5), (0.7, 0.3)]
    utilities = [dict(zip(("u1", "u2"), pair, strict=True)) for pair in policies]
    worst = [found[worst_group(found)] for found in utilities]
    assert worst == [0.2, 0.5, 0.3]
    assert max(range(3), key=worst.__getitem__) == 1
    assert max(range(3), key=lambda i: sum(policies[i])) == 0


@pytest.mark.parametrize(("degrees", "text"), [(-15, (97, -26)), (-30, (87, -50)), (0, (100, 0)), (15, (97, 26))])
def test_direction_as_told(degrees: float, text: tuple[int, int]) -> None:
    assert direction_text(degrees) == text


def test_directional_reward() -> None:
    rewards = parts(helpfulness=[80, 75, 78], verbosity=[60, 20, 40], t=[-15, -15, float("nan")])
    given = Directional(degrees=-15)(rewards)
    assert given.tolist() == pytest.approx([61.744923, 67.268056, 64.989453], abs=TOLERANCE)
    own = Directional(degrees_part="t")(rewards)
    assert own[:2].tolist() == pytest.approx(given[:2].tolist())
    assert bool(own[2].isnan())
