"""Reference oracles [value clip] and [HL-Gauss], and what each head promises."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from assay.errors import BadInputError
from assay_policy_training.plugins.critics.heads import HlGauss, Scalar, clipped_value_loss, hl_gauss
from assay_policy_training.plugins.critics.value_model import ValueModel

TOLERANCE = 1e-5
FIVE = torch.linspace(0, 1, 6, dtype=torch.float64)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_value_clip() -> None:
    loss, clipped = clipped_value_loss(number(0.9), number(0.5), number(1.0), clip=0.2)
    assert float(loss) == pytest.approx(0.045, abs=TOLERANCE)
    assert bool(clipped)
    free, off = clipped_value_loss(number(0.9), number(0.5), number(1.0), clip=None)
    assert float(free) == pytest.approx(0.005, abs=TOLERANCE)
    assert not bool(off)


def test_a_clipped_value_gets_no_gradient() -> None:
    value = number(0.9).requires_grad_()
    loss, _ = clipped_value_loss(value, number(0.5), number(1.0), clip=0.2)
    (gradient,) = torch.autograd.grad(loss, value)
    assert float(gradient) == 0.0


def test_hl_gauss_of_the_middle() -> None:
    found = hl_gauss(number(0.5), FIVE, sigma=0.75 * 0.2)
    assert found.tolist() == pytest.approx([0.02234, 0.22994, 0.49544, 0.22994, 0.02234], abs=TOLERANCE)


@pytest.mark.parametrize("target", [-3.0, 0.0, 0.31, 1.0, 40.0])
def test_hl_gauss_is_a_distribution_and_turns_around(target: float) -> None:
    found = hl_gauss(number(target), FIVE, sigma=0.15)
    assert float(found.sum()) == pytest.approx(1.0)
    assert bool((found >= 0).all())
    mirrored = hl_gauss(number(1 - target), FIVE, sigma=0.15)
    torch.testing.assert_close(mirrored.flip(0), found)
    inside = hl_gauss(number(min(1.0, max(0.0, target))), FIVE, sigma=0.15)
    torch.testing.assert_close(found, inside)


def test_value_of_a_perfect_categorical_prediction() -> None:
    """Cross-entropy is least where the prediction is the target, whose mean is the return (away from the ends)."""
    head = HlGauss(outputs=21, low=-1.0, high=2.0)
    wanted = hl_gauss(number(0.7), head.edges(torch.device("cpu")), sigma=head.sigma_bins * head.width)
    perfect = wanted.log().requires_grad_()
    assert float(head.value(perfect.detach())) == pytest.approx(0.7, abs=1e-3)
    loss, outside = head.loss(perfect, number(0.0), number(0.7))
    (gradient,) = torch.autograd.grad(loss, perfect)
    assert float(gradient.abs().max()) < 1e-9
    assert not bool(outside)
    assert bool(head.loss(perfect, number(0.0), number(2.5))[1])


def test_heads_begin_in_the_middle() -> None:
    assert float(Scalar().value(torch.zeros(1))) == 0.0
    assert float(HlGauss(outputs=7, low=-1.0, high=3.0).value(torch.zeros(7))) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"head": "hl_gauss"}, "clip"),  # the default clips, which a categorical critic cannot
        ({"head": "hl_gauss", "clip": None, "bins": 1}, "bins"),
        ({"head": "hl_gauss", "clip": None, "low": 2.0}, "low"),
        ({"head": "twin"}, "head"),
        ({"clip": 0.0}, "clip"),
        ({"lr": -1.0}, "lr"),
        ({"epochs": 0}, "epochs"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=field):
        ValueModel(**settings)
