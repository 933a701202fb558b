"""The reference numbers of the three-state process, and every claimed rate on random processes."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from tabular.decision_process import DecisionProcess, project, random_process
from tabular.methods import (
    EntropyNaturalGradient,
    HadamardGradient,
    MirrorDescent,
    ProjectedGradient,
    SoftmaxGradient,
    SoftmaxNaturalGradient,
    TabularMethod,
    gaps,
)
from tabular.temporal_difference import ExpectedTemporalDifference, SampledTemporalDifference

from assay.errors import BadInputError

FLOOR = 1e-13  # of a gap: rounding


@pytest.fixture(scope="module")
def process() -> DecisionProcess:
    transitions = np.array(
        [[[0.8, 0.2, 0], [0.1, 0.6, 0.3]], [[0.5, 0.5, 0], [0, 0.3, 0.7]], [[0.2, 0, 0.8], [0.6, 0.2, 0.2]]]
    )
    return DecisionProcess(transitions, np.array([[0.1, 0.0], [0.2, 0.5], [1.0, 0.3]]), np.ones(3) / 3, 0.9)


@pytest.fixture(scope="module")
def several() -> list[DecisionProcess]:
    return [random_process(6, 4, seed=seed) for seed in range(5)]


def test_optimum_and_uniform_gap(process: DecisionProcess) -> None:
    assert process.optimum() == pytest.approx([6.864151, 7.575316, 7.984097], abs=1e-6)
    assert process.gap(process.uniform) == pytest.approx(4.103, abs=5e-4)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (MirrorDescent(1.0), (9.063e-3, 9.477e-11, 0)),
        (ProjectedGradient(1.0), (0, 0, 0)),
        (SoftmaxGradient(1.0), (1.458e-1, 2.964e-2, 7.467e-3)),
        (HadamardGradient(0.02), (5.823e-1, 1.883e-2, 1.441e-6)),
        (HadamardGradient(0.05), (1.181e-1, 1.309e-4, 2.665e-15)),
        (HadamardGradient(1.0), (4.113, 4.121, 4.121)),
        (MirrorDescent(0.5, growth=1 / 0.9), (1.865e-2, 0, 0)),
        (ExpectedTemporalDifference(0.5, 1.0), (4.682e-2, 4.622e-10, 0)),
    ],
    ids=["natural", "projected", "softmax", "hadamard .02", "hadamard .05", "hadamard 1", "geometric", "td"],
)
def test_gaps_after_10_50_and_200_steps(
    process: DecisionProcess, method: TabularMethod, expected: tuple[float, ...]
) -> None:
    found = gaps(method, process, 200)
    assert found[[10, 50, 200]] == pytest.approx(expected, rel=6e-4, abs=FLOOR)


def test_soft_policy_iteration_is_quadratic(process: DecisionProcess) -> None:
    errors = EntropyNaturalGradient(step=10.0, temperature=0.1).errors(process, 4)
    assert errors[:4] == pytest.approx([3.41, 1.73e-2, 2.91e-6, 7.9e-14], rel=0.05)


def test_entropy_natural_gradient(process: DecisionProcess) -> None:
    errors = EntropyNaturalGradient(step=2.0, temperature=0.1).errors(process, 20)
    assert errors[[0, 5, 10, 20]] == pytest.approx([3.41, 8.67e-3, 3.69e-4, 3.01e-6], rel=2e-3)
    assert (errors[20] / errors[10]) ** 0.1 == pytest.approx(0.618, abs=1e-3)


def test_one_step_of_td_mirror_descent(process: DecisionProcess) -> None:
    policy, estimate = list(islice(ExpectedTemporalDifference(0.5, 1.0).estimates(process), 2))[1]
    assert estimate.ravel() == pytest.approx([0.05, 0, 0.1, 0.25, 0.5, 0.15])
    assert policy[:, 0] == pytest.approx([0.512497, 0.46257, 0.586618], abs=1e-6)


def test_softmax_natural_gradient_is_mirror_descent(several: list[DecisionProcess]) -> None:
    for process in several:
        ours, other = SoftmaxNaturalGradient(0.7).policies(process), MirrorDescent(0.7).policies(process)
        for a, b in islice(zip(ours, other, strict=True), 30):
            assert a == pytest.approx(b, abs=1e-10)


@pytest.mark.slow
def test_softmax_gradient_is_sublinear(several: list[DecisionProcess]) -> None:
    """k * gap settles, so the gap falls like 1/k and by ever smaller factors."""
    for process in several:
        found = gaps(SoftmaxGradient(0.2), process, 8000)
        assert found[8000] * 8000 == pytest.approx(found[4000] * 4000, rel=0.25)
        assert found[8000] / found[7999] > 0.9995


@pytest.mark.parametrize("step", [0.3, 1.0, 3.0])
def test_natural_gradient_is_linear_for_any_constant_step(several: list[DecisionProcess], step: float) -> None:
    """The factor of one step settles below 1, and a larger step makes it smaller."""
    for process in several:
        found = gaps(MirrorDescent(step), process, 400)
        usable = found[found > 1e-9]
        factors = usable[-10:] / usable[-11:-1]
        assert factors.max() < 0.999
        assert factors.std() < 0.02
        assert gaps(MirrorDescent(2 * step), process, len(usable) - 1)[-1] < found[len(usable) - 1]


def test_projected_gradient_ends_exactly_after_finitely_many_steps(several: list[DecisionProcess]) -> None:
    for process in several:
        found = gaps(ProjectedGradient(5.0), process, 60)
        assert abs(found[-1]) < FLOOR * 100
        for policy in islice(ProjectedGradient(5.0).policies(process), 60, 61):
            assert ((policy == 0) | (policy == 1)).all()


def test_projected_gradient_never_gets_worse(several: list[DecisionProcess]) -> None:
    for process in several:
        assert np.diff(gaps(ProjectedGradient(0.05), process, 200)).max() < 1e-12


def test_geometric_steps_are_linear_at_the_rate_of_the_discount(several: list[DecisionProcess]) -> None:
    for process in several:
        found = gaps(MirrorDescent(0.5, growth=1 / process.discount), process, 120)
        assert (found <= found[0] * process.discount ** np.arange(121) * 1.5 + 1e-12).all()


def test_entropy_regularised_rate_is_within_its_bound(several: list[DecisionProcess]) -> None:
    """Locally the error contracts by (1 - step * temperature)^2 a step; with 1 - step * temperature = 0 it squares."""
    for process in several:
        errors = EntropyNaturalGradient(step=2.0, temperature=0.1).errors(process, 60)
        usable = errors[errors > 1e-9]
        assert (usable[-1] / usable[-6]) ** 0.2 <= 0.64 + 0.02
        errors = EntropyNaturalGradient(step=10.0, temperature=0.1).errors(process, 6)
        shrinking = errors[(errors > 1e-12) & (errors < 0.1)]  # within its region of fast convergence
        digits = -np.log10(shrinking)
        assert len(digits) >= 2
        assert (digits[1:] > 1.5 * digits[:-1]).all(), "the number of right digits nearly doubles a step"


@pytest.mark.slow
def test_hadamard_is_linear_in_the_end(several: list[DecisionProcess]) -> None:
    for process in several:
        found = gaps(HadamardGradient(0.02), process, 6000)
        usable = found[found > 1e-9]
        assert len(usable) < 6000
        factors = usable[-20:] / usable[-21:-1]
        assert factors.max() < 0.9999
        assert factors.std() < 0.01


def test_expected_td_with_a_fixed_behaviour_reaches_the_optimum(several: list[DecisionProcess]) -> None:
    for process in several:
        assert gaps(ExpectedTemporalDifference(0.5, 1.0, behaviour="uniform"), process, 800)[-1] < 1e-8


@pytest.mark.slow
def test_sampled_td_nears_the_optimum(several: list[DecisionProcess]) -> None:
    """From a gap of whole units to a small one, on every process; more samples a round get there in fewer rounds."""
    for process in several:
        few = np.mean([gaps(SampledTemporalDifference(seed, 0.1, 0.1, 8), process, 75) for seed in range(2)], axis=0)
        many = np.mean([gaps(SampledTemporalDifference(seed, 0.1, 0.1, 64), process, 150) for seed in range(2)], axis=0)
        assert many[100:].mean() < 0.05 * many[0]
        assert many[:75].mean() < few.mean()


def test_projection_is_the_nearest_point(process: DecisionProcess) -> None:
    points = np.random.default_rng(0).normal(size=(20, 4))
    found = project(points)
    assert found.sum(1) == pytest.approx(np.ones(20))
    assert found.min() >= 0
    others = np.random.default_rng(1).dirichlet(np.ones(4), size=(200, 20))
    assert (((points - found) ** 2).sum(1) <= ((points - others) ** 2).sum(2) + 1e-12).all()


def test_wrong_processes_are_refused() -> None:
    with pytest.raises(BadInputError, match="sum to 1"):
        DecisionProcess(np.ones((2, 1, 2)), np.ones((2, 1)), np.array([0.5, 0.5]), 0.9)
    with pytest.raises(BadInputError, match="discount"):
        DecisionProcess(np.full((2, 1, 2), 0.5), np.ones((2, 1)), np.array([0.5, 0.5]), 1.0)
