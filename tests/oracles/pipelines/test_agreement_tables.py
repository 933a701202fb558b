"""AgreementCoefficients coefficients on published tables, against the library `krippendorff`, and on real votes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import swap_answer
from assay.errors import BadInputError
from assay.statistics.agreement import (
    AgreementCoefficients,
    Labels,
    agreement,
    cohen_kappa,
    krippendorff_alpha,
    percent_agreement,
)
from assay_pipelines.annotation.quality.agreement import agreement_of_votes
from assay_pipelines.annotation.votes import QueueVote

# Fleiss 1971, as worked through in the field's textbooks: 10 subjects, 14 raters, 5 categories.
FLEISS = """0 0 0 0 14
0 2 6 4 2
0 0 3 5 6
0 3 9 2 0
2 2 8 1 1
7 7 0 0 0
3 2 6 3 0
2 5 3 2 2
6 5 2 1 0
0 2 2 3 7"""

# Krippendorff 2011, section E: four observers, twelve units, missing data.
OBSERVERS = """1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 ."""

# Three coders, fifteen units (the worked example of the encyclopedia's article).
CODERS = """* * * * * 3 4 1 2 1 1 3 3 * 3
1 * 2 1 3 3 4 3 * * * * * * *
* * 2 1 3 4 4 * 2 1 1 3 3 * 4"""


def from_counts(table: str) -> Labels:
    items = []
    for line in table.splitlines():
        said = [str(category) for category, n in enumerate(map(int, line.split())) for _ in range(n)]
        items.append({f"rater {n}": label for n, label in enumerate(said)})
    return items


def from_observers(table: str) -> Labels:
    rows = [line.split() for line in table.splitlines()]
    return [
        {f"observer {who}": row[item] for who, row in enumerate(rows) if row[item] not in ".*"}
        for item in range(len(rows[0]))
    ]


def test_fleiss_1971() -> None:
    assert agreement(from_counts(FLEISS), resamples=2).fleiss.value == pytest.approx(0.210, abs=5e-4)
    assert percent_agreement(from_counts(FLEISS)) == pytest.approx(0.378, abs=5e-4)


def test_krippendorff_2011() -> None:
    labels = from_observers(OBSERVERS)
    scale = ["1", "2", "3", "4", "5"]
    assert krippendorff_alpha(labels) == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(labels, "ordinal", order=scale) == pytest.approx(0.815, abs=5e-4)
    assert krippendorff_alpha(labels, "interval", order=scale) == pytest.approx(0.849, abs=5e-4)


def test_three_coders() -> None:
    labels = from_observers(CODERS)
    assert krippendorff_alpha(labels) == pytest.approx(0.691, abs=5e-4)
    assert krippendorff_alpha(labels, "interval", order=["1", "2", "3", "4"]) == pytest.approx(0.811, abs=5e-4)


def test_cohen_two_readers_of_grant_proposals() -> None:
    cells = {("yes", "yes"): 20, ("yes", "no"): 5, ("no", "yes"): 10, ("no", "no"): 15}
    labels = [{"a": one, "b": two} for (one, two), n in cells.items() for _ in range(n)]
    found = agreement(labels, resamples=50)
    assert cohen_kappa([[20, 5], [10, 15]]) == found.cohen.value == pytest.approx(0.4)
    assert percent_agreement(labels) == pytest.approx(0.7)
    # two raters, no ties in margins of the sum: Fleiss is Scott's pi, here a little lower
    assert found.fleiss.value == pytest.approx(1 - 0.3 / (1 - 0.55**2 - 0.45**2))


def test_a_label_off_the_scale_is_refused() -> None:
    with pytest.raises(BadInputError, match="not on the scale"):
        krippendorff_alpha([{"a": "1", "b": "9"}], "ordinal", order=["1", "2"])


def test_what_the_data_cannot_tell_is_none() -> None:
    nothing: Labels = []
    same: Labels = [{"a": "A", "b": "A"}] * 3
    for labels in (nothing, same, [{"a": "A"}, {"b": "B"}]):
        found = agreement(labels, resamples=50)
        assert (found.fleiss.value, found.alpha.value, found.cohen.value) == (None, None, None)
    assert percent_agreement(same) == 1.0
    assert percent_agreement(nothing) is None
    assert cohen_kappa([[3, 0], [0, 0]]) is None
    assert cohen_kappa([[0, 0], [0, 0]]) is None


ANSWERS = st.sampled_from(["A", "B", "tie"])
ITEMS = st.lists(st.dictionaries(st.sampled_from("abcdef"), ANSWERS, max_size=6), max_size=12)


@given(ITEMS)
def test_alpha_equals_the_library(items: list[dict[str, str]]) -> None:
    people = sorted({name for item in items for name in item})
    said = {label for item in items if len(item) > 1 for label in item.values()}
    if len(said) < 2:
        assert krippendorff_alpha(items) is None
        return
    number = {"A": 0.0, "tie": 1.0, "B": 2.0}
    data = np.array([[number[item[name]] if name in item else np.nan for item in items] for name in people])
    scale = [0.0, 1.0, 2.0]
    nominal = krippendorff.alpha(reliability_data=data, level_of_measurement="nominal", value_domain=scale)
    assert krippendorff_alpha(items) == pytest.approx(nominal, abs=1e-9)
    ordinal = krippendorff.alpha(reliability_data=data, level_of_measurement="ordinal", value_domain=scale)
    assert krippendorff_alpha(items, "ordinal", order=["A", "tie", "B"]) == pytest.approx(ordinal, abs=1e-9)


def figures(found: AgreementCoefficients) -> list[float | None]:
    return [e.value for e in (found.percent, found.cohen, found.fleiss, found.alpha)]


@given(ITEMS, st.permutations("abcdef"), st.randoms(use_true_random=False))
def test_names_sides_and_the_order_of_items_do_not_matter(
    items: list[dict[str, str]], names: list[str], random: object
) -> None:
    plain = figures(agreement(items, resamples=2))
    renamed = dict(zip("abcdef", names, strict=True))
    swapped = [{renamed[name]: str(swap_answer(said)) for name, said in item.items()} for item in items]  # type: ignore[arg-type]
    random.shuffle(swapped)  # type: ignore[attr-defined]
    assert figures(agreement(swapped, resamples=2)) == pytest.approx(plain, nan_ok=True)


@given(ITEMS)
def test_agreement_is_never_above_one(items: list[dict[str, str]]) -> None:
    for value in figures(agreement(items, resamples=2)):
        assert value is None or value <= 1 + 1e-12


def test_intervals_hold_the_value_and_shrink_with_items() -> None:
    labels = from_counts(FLEISS)
    few, many = agreement(labels), agreement(list(labels) * 9)
    for one, nine in ((few.fleiss, many.fleiss), (few.alpha, many.alpha), (few.percent, many.percent)):
        assert one.interval is not None
        assert nine.interval is not None
        assert one.value is not None
        assert one.interval.low < one.value < one.interval.high
        assert nine.interval.high - nine.interval.low < 0.5 * (one.interval.high - one.interval.low)
    assert few.cohen.interval is not None


def test_ties_are_folded_and_reported_both_ways() -> None:
    def vote(comparison: str, who: str, answer: str, strength: int | None = None, why: str | None = None) -> QueueVote:
        return QueueVote(f"j-{comparison}{who}", comparison, who, answer, strength, rationale=why)  # type: ignore[arg-type]

    votes = [
        vote("1", "ann", "both_good"),
        vote("1", "bob", "both_bad"),  # a tie is a tie
        vote("2", "ann", "A", 3),
        vote("2", "bob", "tie"),
        vote("3", "ann", "B", 1),
        vote("3", "bob", "B", 2),
        vote("4", "ann", "A", 1),
        vote("4", "bob", "skip", why="cannot_decide"),
    ]
    found = agreement_of_votes(votes, resamples=20)
    assert found.with_ties.items == 3
    assert found.with_ties.percent.value == pytest.approx(2 / 3)
    assert found.ties_dropped.items == 1
    assert found.ties_dropped.percent.value == 1.0
    assert found.tie_rate == pytest.approx(3 / 7)
    assert found.strength_items == 2, "an item of ties only says nothing of strength"
    assert found.strength.value is not None
    assert found.strength.value > 0, "the same sign is nearer than opposite signs"


def test_the_five_votes_of_ukpconvarg1(shared_data: Path) -> None:
    items = []
    with gzip.open(shared_data / "ukpconvarg1_pairs.jsonl.gz", "rt") as stream:
        for line in stream:
            votes = json.loads(line)["ratings"]["votes"]
            items.append({vote["annotator"]: vote["value"] for vote in votes})
    items = items[:3000]
    found = agreement(items, resamples=100)
    assert found.items == 3000
    assert found.fleiss.value is not None
    assert found.alpha.value is not None
    assert 0.2 < found.alpha.value < 0.6, "fair to moderate: convincingness is a matter of opinion"
    assert found.alpha.value == pytest.approx(found.fleiss.value, abs=0.01)
    dropped = agreement([{w: v for w, v in item.items() if v != "tie"} for item in items], resamples=2)
    assert dropped.percent.value is not None
    assert found.percent.value is not None
    assert dropped.percent.value > found.percent.value + 0.05
