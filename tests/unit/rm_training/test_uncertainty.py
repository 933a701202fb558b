"""The worth of an uncertainty: its scale is recovered, useful and useless ones are told apart."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from assay.errors import BadInputError
from assay_rm_training.calibration.uncertainty import UncertaintyReport, measure_uncertainty

Floats: TypeAlias = npt.NDArray[np.float64]


def report(margin: Floats, deviation: Floats, **change: Any) -> UncertaintyReport:
    measured = measure_uncertainty(margin, deviation, change.get("prompts", [str(i) for i in range(len(margin))]))
    assert measured is not None
    return measured


def labelled(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Margins of chosen over rejected and their deviations, where the true margin is normal about the model's."""
    rng = np.random.default_rng(seed)
    deviation = rng.uniform(0.1, 6.0, n)
    margin = rng.normal(0.0, 2.0, n)
    true = margin + deviation * rng.normal(size=n)
    first = rng.random(n) < 1 / (1 + np.exp(-true))
    return np.where(first, margin, -margin), deviation


def test_the_scale_of_too_small_deviations_is_found_and_they_order_pairs() -> None:
    margin, deviation = labelled(6000)
    measured = report(margin, deviation / 3)
    assert measured.factor == pytest.approx(3.0, rel=0.2)
    assert measured.temperature == pytest.approx(1.0, rel=0.15)
    assert measured.gain_interval is not None
    assert measured.gain_interval.low > 0
    uncertainty, size, both = measured.thirds
    assert uncertainty.verdict == "orders pairs by accuracy"
    right, order = margin > 0, np.argsort(deviation)
    assert uncertainty.accuracy[0] == pytest.approx(right[order[:2000]].mean())
    assert size.interval is not None
    assert both.difference > max(uncertainty.difference, size.difference)


def test_deviations_that_say_nothing_are_said_to_say_nothing() -> None:
    margin, deviation = labelled(2000)
    measured = report(margin, np.random.default_rng(1).permutation(deviation))
    assert measured.gain < 0.002
    assert measured.thirds[0].verdict == "DOES NOT ORDER PAIRS by accuracy"
    reversed_ = report(margin, deviation.max() - deviation)
    assert reversed_.thirds[0].verdict == "ORDERS PAIRS THE WRONG WAY"
    assert report(margin, 0 * deviation).factor == 1.0
    assert "DOES NOT ORDER PAIRS" in str(measured.rows())
    assert measured.to_dict()["verdict"] == measured.thirds[0].verdict


def test_the_interval_of_the_difference_covers_it_for_pairs_that_repeat_within_prompts() -> None:
    """Every pair four times in its prompt: as wide as that of each once, not half as wide."""
    margin, deviation = labelled(400)
    once = report(margin, deviation).thirds[0]
    again = report(
        np.repeat(margin, 4), np.repeat(deviation, 4), prompts=np.repeat(np.arange(400), 4).astype(str)
    ).thirds[0]
    assert once.interval is not None
    assert again.interval is not None
    width = once.interval.high - once.interval.low
    assert again.interval.high - again.interval.low == pytest.approx(width, rel=0.1)
    independent = 2 * 1.96 * np.sqrt(sum(p * (1 - p) / 133 for p in (once.accuracy[0], once.accuracy[2])))
    assert width == pytest.approx(independent, rel=0.1)


def test_few_pairs_and_bad_numbers() -> None:
    margin, deviation = labelled(29)
    assert measure_uncertainty(margin, deviation, ["p"] * 29) is None
    with pytest.raises(BadInputError, match="finite"):
        measure_uncertainty([np.nan] * 40, np.ones(40), ["p"] * 40)
    with pytest.raises(BadInputError, match="0 or more"):
        measure_uncertainty(np.ones(40), -np.ones(40), ["p"] * 40)
    one_prompt = report(*labelled(60), prompts=["p"] * 60)
    assert one_prompt.thirds[0].interval is None
    assert "undetermined" in str(one_prompt.thirds[0])
