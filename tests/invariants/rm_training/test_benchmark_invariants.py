"""What no benchmark's aggregates may depend on, whatever the scores: scale, offset, the order of the items."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.domain import Message
from assay_rm_training.benchmarks.benchmark import ScoredItems
from assay_rm_training.benchmarks.catalogue import benchmark
from assay_rm_training.benchmarks.comparison import compare
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, with_unique_keys
from assay_rm_training.benchmarks.report import reduce

PARTS = {
    "rewardbench": ["alpacaeval-easy", "mt-bench-hard", "donotanswer", "math-prm", "hep-go"],
    "rewardbench2": ["Focus", "Math", "Ties"],
    "rm-bench": ["chat", "math", "code", "safety-refuse", "safety-response"],
    "judgebench": ["knowledge", "reasoning", "math", "coding"],
    "rmb": ["pairwise_helpfulness", "bon_helpfulness", "pairwise_harmlessness", "bon_harmlessness"],
    "ppe": ["preference", "math", "gpqa"],
    "pairs": ["one", "two"],
}
#: Aggregates in units of the scores' differences, or of a ratio of them.
SCALED = {"preference/vote_brier"}


def gold_of(bench: str, part: str, n: int) -> tuple[float, ...]:
    if bench == "rm-bench":
        return (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    if part == "Ties":
        return (1.0, 0.0, 0.0) if n % 2 else (1.0, 1.0, 0.0)
    if bench == "rewardbench2" or part.startswith("bon_"):
        return (1.0, 0.0, 0.0, 0.0)
    if bench == "ppe" and part != "preference":
        return (1.0, 0.0, 1.0, 0.0, 0.0)
    return (1.0, 0.0) if bench != "judgebench" or n % 3 else (0.0, 1.0)


def made(bench: str, each: int = 8) -> list[BenchmarkItem]:
    items = []
    for part in PARTS[bench]:
        for n in range(each):
            gold = gold_of(bench, part, n)
            id_ = f"{'ref' if n % 2 else 'tied'}:{n // 2}" if part == "Ties" else f"{part}-{n}"
            items.append(
                BenchmarkItem(
                    id=id_,
                    prompt=(Message("user", f"{part} {n // 2 if part == 'Ties' else n}"),),
                    responses=tuple(map(str, range(len(gold)))),
                    gold=gold,
                    subset="en" if part == "preference" else part,
                    part=part,
                    models=tuple("abcd"[(n + k) % 4] for k in range(2)),
                )
            )
    return with_unique_keys(items)[0]


def scores_of(items: Sequence[BenchmarkItem], seed: int, levels: int = 5) -> list[tuple[float, ...]]:
    """Whole numbers, so that ties happen."""
    rng = random.Random(seed)
    return [tuple(float(rng.randrange(levels)) for _ in item.responses) for item in items]


def aggregates(
    bench: str, items: Sequence[BenchmarkItem], scores: Sequence[Sequence[float]], *, whole: bool = False
) -> dict[str, float | None]:
    outcomes = [Outcome(scores=tuple(row)) for row in scores]
    return reduce(benchmark(bench).measure(ScoredItems(items, outcomes)), seed=0, intervals=whole)[0]


def same(bench: str, a: dict[str, float | None], b: dict[str, float | None]) -> bool:
    return a.keys() == b.keys() and all(
        a[name] == pytest.approx(b[name], abs=1e-12) for name in a if name not in SCALED
    )


@pytest.mark.parametrize("bench", [name for name in PARTS if name != "ppe"])
@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.25, 2.0, 1024.0]), offset=st.integers(-50, 50))
def test_a_shift_and_a_positive_scale_change_nothing(bench: str, seed: int, scale: float, offset: int) -> None:
    items = made(bench)
    scores = scores_of(items, seed)
    moved = [tuple(scale * value + offset for value in row) for row in scores]
    assert same(bench, aggregates(bench, items, scores), aggregates(bench, items, moved))


def test_ppe_knows_no_shift_and_no_scale_either() -> None:
    items = made("ppe", each=24)
    scores = scores_of(items, 3)
    moved = [tuple(4 * value - 7 for value in row) for row in scores]
    plain = aggregates("ppe", items, scores, whole=True)
    assert {"preference/row_pearson", "preference/separability", "preference/brier"} <= plain.keys()
    assert same("ppe", plain, aggregates("ppe", items, moved, whole=True))


@pytest.mark.parametrize("bench", [name for name in PARTS if name != "ppe"])
def test_the_order_of_the_items_changes_nothing(bench: str) -> None:
    items = made(bench)
    scores = scores_of(items, 1)
    order = list(range(len(items)))
    random.Random(0).shuffle(order)
    mixed = aggregates(bench, [items[i] for i in order], [scores[i] for i in order])
    plain = aggregates(bench, items, scores)
    assert same(bench, plain, {name: mixed[name] for name in plain})


@pytest.mark.parametrize("bench", ["rewardbench", "rm-bench", "pairs", "judgebench"])
def test_negating_scores_without_ties_exchanges_right_and_wrong(bench: str) -> None:
    items = made(bench)
    rng = random.Random(5)
    scores = [tuple(rng.random() for _ in item.responses) for item in items]
    plain = aggregates(bench, items, scores)
    negated = aggregates(bench, items, [tuple(-value for value in row) for row in scores])
    if bench == "rm-bench":  # a plainer chosen response that wins becomes one that loses
        assert plain["overall"] == pytest.approx(1 - (negated["overall"] or 0))
    else:
        assert all(plain[name] == pytest.approx(1 - (negated[name] or 0)) for name in plain)


@pytest.mark.parametrize(
    ("bench", "overall"),
    [("rewardbench", 0.0), ("rm-bench", 0.0), ("rmb", 0.0), ("pairs", 0.0), ("rewardbench2", (0.25 + 0.25 + 0.0) / 3)],
)
def test_constant_scores(bench: str, overall: float) -> None:
    items = made(bench)
    assert aggregates(bench, items, [(1.5,) * len(i.responses) for i in items])["overall"] == pytest.approx(overall)


@pytest.mark.parametrize("bench", PARTS)
def test_gold_as_scores_is_the_best_there_is(bench: str) -> None:
    items = made(bench)
    found = aggregates(bench, items, [item.gold for item in items])
    if bench == "ppe":
        assert found["preference/accuracy"] == found["correctness/auc"] == found["correctness/pair_accuracy"] == 1.0
        assert found["correctness/regret"] == found["correctness/loss"] == 0.0
    else:
        assert found["overall"] == pytest.approx((1.0 + 1.0 + 1.01) / 3 if bench == "rewardbench2" else 1.0)


@pytest.mark.parametrize("bench", PARTS)
def test_failed_items_are_left_out_and_as_wrong_can_only_lower_an_accuracy(bench: str) -> None:
    items = made(bench)
    scores = scores_of(items, 2)
    failed = {3, 9}
    outcomes = [Outcome(failure="too_long") if n in failed else Outcome(scores=row) for n, row in enumerate(scores)]
    kept = [n for n in range(len(items)) if n not in failed]
    without = aggregates(bench, [items[n] for n in kept], [scores[n] for n in kept])
    left_out = reduce(benchmark(bench).measure(ScoredItems(items, outcomes)), seed=0, intervals=False)[0]
    assert same(bench, left_out, without)
    as_wrong = ScoredItems(items, outcomes, failed_as_wrong=True)
    wrong = reduce(benchmark(bench).measure(as_wrong), seed=0, intervals=False)[0]
    for name in ("overall", "preference/accuracy"):
        if name in wrong:
            assert (wrong[name] or 0) <= (left_out[name] or 0)


@pytest.mark.parametrize("bench", PARTS)
def test_a_model_compared_with_itself_differs_by_nothing(bench: str) -> None:
    items = made(bench, each=4)
    outcomes = [Outcome(scores=row) for row in scores_of(items, 4)]
    found = compare(benchmark(bench), items, ("a", outcomes), ("b", outcomes))
    assert found.items == len(items)
    assert found.differences
    assert all(d.value == 0.0 and not d.settled for d in found.differences.values())


def test_a_paired_difference_is_sharper_than_two_intervals() -> None:
    items = made("pairs", each=200)
    rng = random.Random(1)
    first = [Outcome(scores=(1.0, 0.0) if rng.random() < 0.6 else (0.0, 1.0)) for _ in items]
    second = [o if n % 20 else Outcome(scores=(1.0, 0.0)) for n, o in enumerate(first)]
    found = compare(benchmark("pairs"), items, ("a", first), ("b", second)).differences["overall"]
    assert 0 < found.value < 0.05
    assert found.settled
    assert found.high is not None
    assert found.low is not None
    assert found.high - found.low < 0.05
