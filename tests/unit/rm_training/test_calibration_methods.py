"""Calibration methods: antisymmetric and monotone whichever, fitted well, chosen and measured on left-out pairs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay.models.calibration import CALIBRATION_METHODS, Calibration, CalibrationMethod
from assay.models.spec import RewardModelSpec
from assay_rm_training.calibration.fitting import (
    fit_calibration,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    pool_adjacent_violators,
)
from assay_rm_training.calibration.held_out import calibrate
from assay_rm_training.calibration.measures import (
    calibration_report,
    measure_text,
    probabilities_of,
    reliability_lines,
    sigmoid,
)
from assay_rm_training.checkpoints.card_sections import calibration_lines
from assay_rm_training.run_settings import CalibrationConfig

finite = st.floats(-30, 30)
margins = st.lists(st.floats(-5, 5), min_size=4, max_size=60).filter(lambda d: sum(d) / len(d) > 0.05)


def pairs_of(probability: object, n: int, seed: int) -> tuple[np.ndarray, list[str]]:  # type: ignore[type-arg]
    """d = chosen - rejected of n pairs whose true P(first wins) is probability(first - second)."""
    rng = np.random.default_rng(seed)
    d = rng.normal(0, 3, n)
    won = rng.random(n) < probability(d)  # type: ignore[operator]
    return np.where(won, d, -d), [f"p-{i // 2}" for i in range(n)]


@settings(max_examples=30)
@given(margins, st.sampled_from(CALIBRATION_METHODS), finite, finite, finite)
def test_pair_probabilities_are_monotone_and_never_contradict_themselves(
    d: list[float], method: CalibrationMethod, a: float, b: float, c: float
) -> None:
    fitted = fit_calibration(d, [0.0] * len(d), fitted_on="x", method=method)
    assert fitted.pair_probability(a, b) + fitted.pair_probability(b, a) == pytest.approx(1.0, abs=1e-12)
    low, high = sorted((a, b))
    assert fitted.pair_probability(low, c) <= fitted.pair_probability(high, c) + 1e-12
    assert fitted.pair_probability(high, low) >= 0.5
    assert fitted.pair_probability(a, a) == pytest.approx(0.5)
    assert 0 <= fitted.probability(a) <= 1
    vector = probabilities_of(np.array([a - b, b - a, a]), fitted)
    scalar = [fitted.of_difference(x) for x in (a - b, b - a, a)]
    assert vector.tolist() == pytest.approx(scalar, abs=1e-9)
    again = Calibration.from_dict(json.loads(json.dumps(asdict(fitted))))
    assert (again, again.id) == (fitted, fitted.id)


def test_a_calibration_from_before_there_was_a_choice_is_read_as_it_was(tmp_path: Path) -> None:
    spec = RewardModelSpec("scalar", "tiny", "t", 100, "v")
    spec.write(tmp_path)
    written = json.loads((tmp_path / "assay.json").read_text())
    written["calibration"] = {"temperature": 2.0, "reference": 0.5, "fitted_on": "gold", "pairs": 10}
    (tmp_path / "assay.json").write_text(json.dumps(written))
    found = RewardModelSpec.read(tmp_path)
    assert found is not None
    assert found.calibration == Calibration(2.0, 0.5, "gold", 10)
    assert found.calibration.pair_probability(2.0, 0.0) == pytest.approx(1 / (1 + math.exp(-1)))


def test_the_id_names_the_function_not_where_it_came_from() -> None:
    base = Calibration(2.0, 0.5, "gold", 10)
    assert base.id == Calibration(2.0, 0.5, "other", 99, measured={"ece": 1}).id
    others = [
        Calibration(2.1, 0.5, "gold", 10),
        Calibration(2.0, 0.6, "gold", 10),
        Calibration(2.0, 0.5, "gold", 10, method="platt", offset=1.0),
        Calibration(2.0, 0.5, "gold", 10, method="isotonic", knots=((1.0, 0.7),)),
    ]
    assert len({base.id, *(other.id for other in others)}) == 5


@pytest.mark.parametrize("knots", [(), ((0.0, 0.6),), ((1.0, 0.4),), ((1.0, 0.8), (2.0, 0.7)), ((1.0, 1.1),)])
def test_knots_that_are_no_monotone_curve_are_refused(knots: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(BadInputError, match="knot"):
        Calibration(1.0, 0.0, "x", 1, method="isotonic", knots=knots)


def test_pool_adjacent_violators_equals_scipy() -> None:
    isotonic_regression = pytest.importorskip("scipy.optimize").isotonic_regression
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 50, 300):
        x = np.sort(rng.normal(size=n))
        y, w = rng.normal(size=n) + x, rng.integers(1, 4, n).astype(float)
        levels = pool_adjacent_violators(x, y, w)
        reference = isotonic_regression(y, weights=w).x
        assert sum(weight for _, _, weight in levels) == pytest.approx(w.sum())
        # one level a distinct value of the reference, in order
        assert [value for _, value, _ in levels] == pytest.approx(sorted(set(np.round(reference, 12))))


def test_platt_finds_the_optimum_and_is_never_worse_than_the_temperature() -> None:
    minimize = pytest.importorskip("scipy.optimize").minimize
    for seed, true in enumerate((lambda d: sigmoid(d), lambda d: (sigmoid(d + 3) + sigmoid(d - 3)) / 2)):
        d, _ = pairs_of(true, 800, seed)

        def loss(point: np.ndarray, d: np.ndarray = d) -> float:  # type: ignore[type-arg]
            z, b, doubt = d / math.exp(point[0]), point[1], 1 / (len(d) + 2)
            p = (sigmoid(z + b) + sigmoid(z - b)) / 2
            return float(-((1 - doubt) * np.log(p) + doubt * np.log(1 - p)).mean())

        temperature = fit_temperature(d)
        found = fit_platt(d, start=temperature)
        mine = loss(np.array([math.log(found[0]), found[1]]))
        assert mine <= loss(np.array([math.log(temperature), 0.0])) + 1e-12
        best = min(minimize(loss, [0.0, b], method="Nelder-Mead", tol=1e-10).fun for b in (0.1, 1.0, 3.0))
        assert mine <= best + 1e-6


@pytest.mark.slow
def test_isotonic_follows_any_rising_curve() -> None:
    def saturating(d: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]  # labels of which 20 % are flipped
        return np.asarray(0.2 + 0.6 * sigmoid(3 * d))

    d, groups = pairs_of(saturating, 3000, 1)
    found = calibrate(d, np.zeros(len(d)), groups, fitted_on="x")
    assert found.calibration.method == "isotonic"
    assert found.nll["isotonic"] < found.nll["temperature"]
    assert found.calibration.of_difference(3.0) == pytest.approx(0.8, abs=0.05)
    assert found.after.ece < found.before.ece
    assert found.after.nll < found.before.nll
    assert all(low <= high for (low, _), (high, _) in zip(fit_isotonic(d), fit_isotonic(d)[1:], strict=False))


def test_of_equal_methods_the_simplest_is_kept_and_figures_are_of_left_out_pairs() -> None:
    d, groups = pairs_of(lambda d: sigmoid(d / 2), 1500, 2)
    found = calibrate(d, np.zeros(len(d)), groups, fitted_on="gold", method="temperature", folds=4, seed=3)
    assert found.calibration.temperature == pytest.approx(2.0, rel=0.2)
    assert (found.chosen_by, found.folds) == ("name", 4)
    in_sample = calibration_report(d, calibration=found.calibration, seed=3)
    assert found.after.nll > in_sample.nll  # what a fit reports of its own pairs is too good
    assert found.after.nll == pytest.approx(found.nll["temperature"])
    interval = found.after.intervals["nll"]
    assert interval is not None
    assert interval.low < found.after.nll < interval.high
    assert set(found.after.intervals) == {"rms_error", "brier", "nll"}, "those of the biased errors would cover nothing"
    measured = found.calibration.measured
    assert measured["after"]["ece"] == found.after.ece
    assert measured["folds"] == 4
    assert found.to_dict()["id"] == found.calibration.id
    json.dumps(found.to_dict())
    assert calibrate(d, np.zeros(len(d)), groups, fitted_on="gold", method="temperature", folds=4, seed=3) == found


def test_pairs_of_one_prompt_stay_together_and_bad_calls_say_why() -> None:
    with pytest.raises(BadInputError, match="two prompts"):
        calibrate([1.0, 2.0], [0.0, 0.0], ["p", "p"], fitted_on="x")
    with pytest.raises(BadInputError, match="no scored pairs"):
        calibrate([], [], [], fitted_on="x")
    with pytest.raises(BadInputError, match="field 'method'"):
        CalibrationConfig("rm", "x", method="beta")  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="field 'folds'"):
        CalibrationConfig("rm", "x", folds=1)
    with pytest.raises(BadInputError, match="better than chance"):
        calibrate([0.0] * 8, [1.0] * 8, [f"p{i}" for i in range(8)], fitted_on="x")


def test_intervals_of_under_ten_prompts_are_undetermined_on_the_card_as_everywhere() -> None:
    d, _ = pairs_of(lambda d: sigmoid(d / 2), 300, 2)
    found = calibrate(d, np.zeros(len(d)), [f"p{n % 9}" for n in range(300)], fitted_on="gold", method="temperature")
    assert found.after.intervals == {"rms_error": None, "brier": None, "nll": None}
    reason = "(undetermined: few or all alike)"
    assert measure_text(asdict(found.after), "brier") == f"{found.after.brier:.4f} {reason}"
    assert measure_text(asdict(found.after), "ece") == f"{found.after.ece:.4f}"
    card = "\n".join(calibration_lines(found.calibration))
    assert card.count(reason) == 6
    assert measure_text({"ece": 0.1, "intervals": {"ece": [0.05, 0.2]}}, "ece") == "0.1000", "as earlier versions kept"


def test_a_refusal_speaks_of_all_pairs_that_were_given() -> None:
    """One pair makes the model better than chance, and is left out of one of the fits."""
    said = r"on these 4 scored pairs: the fits are on folds of them \(4 by prompt\), and the 3 pairs of one fit"
    for method in ("temperature", "auto"):
        with pytest.raises(BadInputError, match=said):
            calibrate([3.0, -0.5, -0.5, -0.5], [0.0] * 4, list("abcd"), fitted_on="x", method=method, folds=4)
    with pytest.raises(BadInputError, match="on these 4 scored pairs: the model does not rank them better"):
        calibrate([0.0] * 4, [1.0] * 4, list("abcd"), fitted_on="x", method="temperature", folds=4)


def test_the_text_plot_has_a_line_a_bin() -> None:
    report = calibration_report([2.0, -1.0, 0.5, 3.0, -0.1], seed=0)
    lines = reliability_lines(report.bins)
    assert len(lines) == len(report.bins)
    assert all("[" in line and ("|" in line or "*" in line) for line in lines)
