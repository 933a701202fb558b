"""What selectors of pairs claim, on dueling bandits: regret against uniform selection, paired over seeds.

The ratios that docs/policy-training/online.md states are those measured here. A claim that does not hold is here as it
is: the least margin buys copies, and the spread of margins buys labels that no member doubts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preference_bandit import Bandit, Floats, linear, play, tabular

from assay.statistics.intervals import Interval, clustered_mean
from assay_pipelines.online.selectors.kind import SELECTORS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "policy-training" / "online.md"
SEEDS = 32
#: Name -> the bandit of a seed; steps, prompts a step, labels a step.
BANDITS: dict[str, tuple[Callable[[int], Bandit], tuple[int, int, int]]] = {
    "copies": (linear, (20, 8, 4)),
    "no copies": (partial(linear, copies=0.0), (20, 8, 4)),
    "two rewards": (partial(linear, misjudged=True), (20, 8, 4)),
    "tabular": (tabular, (60, 1, 1)),
}


@cache
def regrets(bandit: str, name: str, *settings: tuple[str, Any]) -> dict[str, Floats]:
    """`policy` and `duels` [seeds, steps]."""
    make, (steps, prompts, labels) = BANDITS[bandit]
    selector = SELECTORS.create(name, dict(settings))
    outcomes = [play(make(seed), selector, seed, steps=steps, prompts=prompts, labels=labels) for seed in range(SEEDS)]
    return {"policy": np.stack([o.policy for o in outcomes]), "duels": np.stack([o.duels for o in outcomes])}


def interval(differences: Floats) -> Interval:
    over_seeds = clustered_mean(differences, [str(seed) for seed in range(len(differences))])
    assert over_seeds is not None
    return over_seeds


def compared(bandit: str, figure: str, one: tuple[Any, ...], other: tuple[Any, ...] = ("random",)) -> Interval:
    """Of the difference of cumulative regrets, in units of the other's mean."""
    sums = [regrets(bandit, *arm)[figure].sum(axis=1) for arm in (one, other)]
    return interval((sums[0] - sums[1]) / sums[1].mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bandit", "figure", "name"),
    [
        ("copies", "policy", "posterior"),
        ("copies", "policy", "information_gain"),
        ("copies", "policy", "optimism"),
        ("copies", "policy", "diversity"),
        ("no copies", "policy", "margin"),
        ("no copies", "policy", "disagreement"),
        ("two rewards", "policy", "two_reward"),
        ("tabular", "policy", "posterior"),
        ("tabular", "policy", "optimism"),
        ("copies", "duels", "posterior"),
        ("copies", "duels", "optimism"),
        ("tabular", "duels", "posterior"),
        ("tabular", "duels", "optimism"),
    ],
)
def test_regret_is_below_that_of_uniform_selection(bandit: str, figure: str, name: str) -> None:
    assert compared(bandit, figure, (name,)).high < 0


@pytest.mark.slow
def test_diversity_improves_the_selector_it_stands_on() -> None:
    """A batch of the largest disagreements is one disagreement several times, where responses are alike."""
    assert compared("copies", "policy", ("diversity",), ("disagreement",)).high < 0


def test_the_least_margin_buys_copies() -> None:
    assert compared("copies", "policy", ("margin",)).low > 0


@pytest.mark.slow
def test_the_spread_of_margins_buys_labels_that_nobody_doubts() -> None:
    by_margin = ("disagreement", ("by", "margin"))
    assert compared("no copies", "policy", by_margin, ("disagreement",)).low > 0
    assert compared("no copies", "duels", by_margin).low > 0


@pytest.mark.parametrize("name", ["posterior", "optimism"])
@pytest.mark.slow
def test_regret_of_posterior_sampling_and_of_mex_is_sublinear(name: str) -> None:
    """Labels of the second half cost less than 3/4 of those of the first; with uniform selection, the same."""
    first, second = regrets("tabular", name)["duels"].reshape(SEEDS, 2, -1).mean(axis=2).T
    assert interval(second - 0.75 * first).high < 0
    first, second = regrets("tabular", "random")["duels"].reshape(SEEDS, 2, -1).mean(axis=2).T
    assert interval(second - first).low < 0 < interval(second - first).high


@pytest.mark.slow
def test_the_page_has_the_ratios_that_are_measured() -> None:
    """Of the cumulative regret of the policy to that of `random`, by bandit; in brackets the interval over seeds."""
    table = PAGE.read_text(encoding="utf-8").split("| regret of the policy |")[1]
    stated = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (\d\.\d\d) \[(\d\.\d\d), (\d\.\d\d)\] \|$", table, re.MULTILINE)
    assert {name for name, *_ in stated} == set(SELECTORS.members) - {"random"}
    for name, bandit, ratio, low, high in stated:
        sums = [regrets(bandit, arm)["policy"].sum() for arm in (name, "random")]
        assert float(ratio) == pytest.approx(sums[0] / sums[1], abs=0.02), (name, bandit)
        difference = compared(bandit, "policy", (name,))
        assert [float(low) - 1, float(high) - 1] == pytest.approx([difference.low, difference.high], abs=0.02)
