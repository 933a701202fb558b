"""Losses of a pair against the reference numbers; gradients; properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_rm_training.objectives import pair
from assay_rm_training.objectives.losses import LOSSES
from assay_rm_training.objectives.objective import Objective
from assay_rm_training.objectives.pair import vote_target
from assay_rm_training.objectives.regularisers import centring, log_barrier, squares

D = torch.tensor([2.0, -1.0], dtype=torch.float64)
ZERO = torch.zeros(2, dtype=torch.float64)
ONE = torch.ones(2, dtype=torch.float64)
TIE_LOSSES = ("rao_kupper", "davidson")


def assert_values(found: torch.Tensor, expected: list[float]) -> None:
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Objective(centring=0.0), [0.126928, 1.313262]),
        (Objective("focal", centring=0.0), [0.001804, 0.701868]),
        (Objective("focal_internlm", centring=0.0), [0.007214, 1.313262]),
        (Objective("hinge", centring=0.0), [0.0, 2.0]),
        (Objective("margin_mse", centring=0.0), [1.0, 4.0]),
        (Objective(temperature=2.0, centring=0.0), [0.313262, 0.974077]),
        (Objective(label_smoothing=0.1, centring=0.0), [0.326928, 1.213262]),
        # by hand, p = 0.880797 and 0.268941: (1 - sqrt(p)) / (1 - 0.5); -ln s(d) - ln s(0)
        (Objective("tempered_log", centring=0.0), [0.122984, 0.962809]),
        (Objective("pointwise", centring=0.0), [0.126928 + math.log(2), 1.313262 + math.log(2)]),
    ],
)
def test_card_A5(objective: Objective, expected: list[float]) -> None:
    result = objective(D, ZERO)
    assert_values(result.per_pair, expected)
    assert result.loss.item() == pytest.approx(sum(expected) / 2, abs=1e-6)


def test_card_A5_probabilities() -> None:
    assert_values(torch.sigmoid(D), [0.880797, 0.268941])


def test_card_A6_values_and_gradients() -> None:
    chosen = torch.tensor([1.5, 0.2], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-0.5, 1.2], dtype=torch.float64, requires_grad=True)
    assert_values(Objective(centring=0.0)(chosen, rejected).per_pair, [0.126928, 1.313262])
    assert Objective(centring=0.0)(chosen, rejected).loss.item() == pytest.approx(0.720095, abs=1e-6)
    assert 0.01 * centring(chosen, rejected).mean().item() == pytest.approx(0.0148)
    total = Objective(centring=0.01)(chosen, rejected).loss
    assert total.item() == pytest.approx(0.734895, abs=1e-6)
    total.backward()  # type: ignore[no-untyped-call]
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert_values(chosen.grad, [-0.049601, -0.351529])
    assert_values(rejected.grad, [0.069601, 0.379529])


def test_the_squares_variant_also_shrinks_the_margin() -> None:
    """Card A6, pitfall (vi): the gradient of c^2 + r^2 pulls both to 0, that of (c + r)^2 leaves c - r alone."""
    chosen = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([-2.0], dtype=torch.float64, requires_grad=True)
    assert centring(chosen, rejected).item() == 0.0
    (gradient,) = torch.autograd.grad(squares(chosen, rejected).sum(), chosen)
    assert gradient.item() == 4.0


def test_card_A6b_margin() -> None:
    objective = Objective(use_margin=True, centring=0.0)
    assert_values(objective(D, ZERO, ONE).per_pair, [0.313262, 2.126928])
    assert_values(objective(D, ZERO, ZERO).per_pair, [0.126928, 1.313262])
    assert_values(objective(ONE, ZERO, ONE).per_pair, [math.log(2)] * 2)
    assert_values(Objective(centring=0.0)(D, ZERO, ONE).per_pair, [0.126928, 1.313262])  # margins are off by default


@given(st.floats(-20, 20), st.floats(0, 5))
def test_card_A6b_gradient(d: float, m: float) -> None:
    """-s(-(d - m))."""
    at = torch.tensor([d], dtype=torch.float64, requires_grad=True)
    zero, margin = torch.zeros(1, dtype=torch.float64), torch.tensor([m], dtype=torch.float64)
    (gradient,) = torch.autograd.grad(Objective(use_margin=True, centring=0.0)(at, zero, margin).loss, at)
    assert gradient.item() == pytest.approx(-1 / (1 + math.exp(d - m)), rel=1e-9, abs=1e-15)


def test_card_A7_minimum_of_label_smoothing() -> None:
    objective = Objective(label_smoothing=0.1, centring=0.0)
    at = torch.tensor([math.log(0.9 / 0.1)], dtype=torch.float64, requires_grad=True)
    result = objective(at, torch.zeros(1, dtype=torch.float64))
    assert at.item() == pytest.approx(2.197225, abs=1e-6)
    assert result.loss.item() == pytest.approx(0.325083, abs=1e-6)
    result.loss.backward()  # type: ignore[no-untyped-call]
    assert at.grad is not None
    assert at.grad.item() == pytest.approx(0.0, abs=1e-9)


def test_card_A8_log_barrier() -> None:
    found = log_barrier(torch.tensor([0.0, 4.0, -4.9, 6.0], dtype=torch.float64))
    assert_values(found, [-3.218876, -2.197225, 0.01005, 4.50986])


def test_card_A8_focal_with_the_bound() -> None:
    assert_values(pair.focal_weight(D), [0.056837, 1.0])
    assert pair.focal_internlm(D).mean().item() == pytest.approx(0.660238, abs=1e-6)
    chosen = torch.tensor([1.0, 0.5], dtype=torch.float64)
    rejected = torch.tensor([-1.0, 1.5], dtype=torch.float64)
    assert (log_barrier(chosen) + log_barrier(rejected)).mean().item() == pytest.approx(-6.344749, abs=1e-6)
    objective = Objective("focal_internlm", centring=0.0, bound=0.01)
    assert objective(chosen, rejected).loss.item() == pytest.approx(0.59679, abs=1e-6)


def test_a_reward_outside_the_band_is_not_pulled_back_by_the_bound() -> None:
    """Card A8, pitfall: the side that is cut has no gradient, only the far one has."""
    at = torch.tensor([6.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(log_barrier(at).sum(), at)
    assert gradient.item() == pytest.approx(-1 / 11)


def test_card_B7_cross_entropy_of_two_scores_is_bradley_terry() -> None:
    assert pair.bradley_terry(torch.tensor([1.2 + 0.3], dtype=torch.float64)).item() == pytest.approx(
        0.201413, abs=1e-6
    )


@pytest.mark.parametrize("name", LOSSES.names())
def test_gradients_agree_with_finite_differences(name: str) -> None:
    plain = name == "pointwise"
    objective = Objective(
        name, temperature=1.0 if plain else 1.3, use_margin=not plain, centring=0.02, squares=0.01, bound=0.01
    )
    generator = torch.Generator().manual_seed(5)
    chosen, rejected = torch.randn(2, 6, dtype=torch.float64, generator=generator).requires_grad_().unbind()
    margin = torch.rand(6, dtype=torch.float64, generator=generator)
    outcome = torch.tensor([1, 0.5, 1, 1, 0.5, 0], dtype=torch.float64) if name in TIE_LOSSES else None
    parameter = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def loss(c: torch.Tensor, r: torch.Tensor, extra: torch.Tensor) -> torch.Tensor:
        return objective(c, r, margin, target=outcome, tie_parameter=extra).loss + 0 * extra

    assert torch.autograd.gradcheck(loss, (chosen, rejected, parameter))


def test_gradients_of_soft_labels() -> None:
    objective = Objective(soft_labels=True, use_margin=True, temperature=0.7)
    generator = torch.Generator().manual_seed(6)
    chosen, rejected = torch.randn(2, 6, dtype=torch.float64, generator=generator).requires_grad_().unbind()
    target = torch.rand(6, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(lambda c, r: objective(c, r, ONE.repeat(3), target=target).loss, (chosen, rejected))


rewards = st.lists(st.tuples(st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=20)


@given(rewards)
def test_swapping_the_sides_negates_the_margin_alone(pairs: list[tuple[float, float]]) -> None:
    """BT(d) - BT(-d) = -d, a property of the logistic function; the centring term does not change."""
    chosen, rejected = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    objective = Objective(centring=0.01)
    there, back = objective(chosen, rejected).per_pair, objective(rejected, chosen).per_pair
    assert torch.allclose(there - back, -(chosen - rejected), atol=1e-9)


@given(rewards, st.floats(-20, 20))
def test_losses_of_the_difference_know_no_offset(pairs: list[tuple[float, float]], offset: float) -> None:
    chosen, rejected = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    parameter = torch.zeros((), dtype=torch.float64)
    for name in set(LOSSES.names()) - {"pointwise"}:
        objective = Objective(name, centring=0.0)
        before = objective(chosen, rejected, tie_parameter=parameter).per_pair
        after = objective(chosen + offset, rejected + offset, tie_parameter=parameter).per_pair
        assert torch.allclose(before, after, atol=1e-9), name


@given(st.floats(-1e4, 1e4))
def test_losses_are_finite_and_positive_everywhere(d: float) -> None:
    chosen, rejected = torch.tensor([d], dtype=torch.float32), torch.zeros(1)
    for name in LOSSES.names():
        loss = Objective(name, centring=0.0)(chosen, rejected, tie_parameter=torch.tensor(-1.0)).loss
        assert torch.isfinite(loss), name
        assert loss.item() >= 0, name


@given(st.floats(-30, 30))
def test_tempering_bounds_the_loss_and_gives_bradley_terry_in_the_limit(d: float) -> None:
    at = torch.tensor([d], dtype=torch.float64)
    assert 0 <= pair.tempered_log(at).item() <= 2
    assert pair.tempered_log(at, tempering=1 - 1e-9).item() == pytest.approx(pair.bradley_terry(at).item(), rel=1e-6)


@given(st.floats(-30, 0))
def test_internlm_focal_is_bradley_terry_for_pairs_ranked_wrong(d: float) -> None:
    at = torch.tensor([d], dtype=torch.float64)
    assert pair.focal_internlm(at).item() == pytest.approx(pair.bradley_terry(at).item(), rel=1e-12)


@given(st.floats(0.001, 0.999))
def test_the_minimum_of_a_soft_label_is_its_entropy_at_its_log_odds(target: float) -> None:
    at = torch.tensor([math.log(target / (1 - target))], dtype=torch.float64, requires_grad=True)
    loss = pair.bradley_terry_soft(at, torch.tensor([target], dtype=torch.float64)).sum()
    assert loss.item() == pytest.approx(-target * math.log(target) - (1 - target) * math.log(1 - target), rel=1e-9)
    (gradient,) = torch.autograd.grad(loss, at)
    assert gradient.item() == pytest.approx(0.0, abs=1e-9)


@given(rewards, st.floats(0, 0.49))
def test_a_soft_label_generalises_smoothing(pairs: list[tuple[float, float]], e: float) -> None:
    chosen, rejected = torch.tensor(pairs, dtype=torch.float64).unbind(1)
    soft = Objective(soft_labels=True)(chosen, rejected, target=torch.full_like(chosen, 1 - e)).per_pair
    assert torch.allclose(soft, Objective(label_smoothing=e)(chosen, rejected).per_pair, atol=1e-9)


def test_votes_become_probabilities() -> None:
    """By hand, prior 1/2: (n + 1/2) / (N + 1), ties half a vote for each."""
    assert vote_target(1, 0) == 0.75
    assert vote_target(5, 0) == pytest.approx(5.5 / 6)
    assert vote_target(0, 0, ties=4) == 0.5
    assert vote_target(2, 1, ties=1) == pytest.approx(3 / 5)
    assert vote_target(4, 1, prior=0.0) == 0.8
    with pytest.raises(BadInputError):
        vote_target(0, 0, prior=0.0)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.floats(0.01, 3))
def test_votes_are_symmetric_and_monotone(first: int, second: int, ties: int, prior: float) -> None:
    here = vote_target(first, second, ties, prior=prior)
    assert here + vote_target(second, first, ties, prior=prior) == pytest.approx(1)
    assert here < vote_target(first + 1, second, ties, prior=prior) < 1


def test_objectives_refuse_what_makes_no_sense() -> None:
    wrong: list[dict[str, object]] = [
        {"name": "nonsense"},
        {"label_smoothing": 0.5},
        {"temperature": 0.0},
        {"centring": -1.0},
        {"bound": -1.0},
        {"name": "hinge", "label_smoothing": 0.1},
        {"name": "davidson", "soft_labels": True},
        {"name": "pointwise", "use_margin": True},
        {"soft_labels": True, "label_smoothing": 0.1},
    ]
    for settings in wrong:
        with pytest.raises(BadInputError):
            Objective(**settings)  # type: ignore[arg-type]
