"""Every protocol, best-of-n and rank correlation against the reference numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from assay.domain import Message
from assay.statistics.best_of_n import expected_best, kl_best_of
from assay.statistics.rank_correlation import kendall_tau_b, spearman
from assay_rm_training.benchmarks.benchmark import Benchmark, TiePolicy
from assay_rm_training.benchmarks.figures.vote_figures import confidence_agreement, separability
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, with_unique_keys
from assay_rm_training.benchmarks.protocols.judgebench import BENCHMARK as JUDGEBENCH
from assay_rm_training.benchmarks.protocols.judgebench import games_right
from assay_rm_training.benchmarks.protocols.pair_file import BENCHMARK as PAIRS
from assay_rm_training.benchmarks.protocols.ppe import auc
from assay_rm_training.benchmarks.protocols.rewardbench import BENCHMARK as REWARDBENCH
from assay_rm_training.benchmarks.protocols.rewardbench2 import BENCHMARK as REWARDBENCH_2
from assay_rm_training.benchmarks.protocols.rewardbench2 import row_score
from assay_rm_training.benchmarks.protocols.rm_bench import BENCHMARK as RM_BENCH
from assay_rm_training.benchmarks.protocols.rmb import BENCHMARK as RMB
from assay_rm_training.benchmarks.report import BenchmarkReport, report

Rows = list[tuple[str, Sequence[float], str]]


def items_of(rows: Sequence[tuple[str, Sequence[float], str]]) -> list[BenchmarkItem]:
    """(id, gold, part) of each item; every item has a prompt of its own."""
    made = [
        BenchmarkItem(
            id=id_,
            prompt=(Message("user", f"{n}"),),
            responses=tuple(f"{id_}-{place}" for place in range(len(gold))),
            gold=tuple(gold),
            subset=part,
            part=part,
            models=("m",),
        )
        for n, (id_, gold, part) in enumerate(rows)
    ]
    return with_unique_keys(made)[0]


def evaluated(
    bench: Benchmark,
    rows: Sequence[tuple[str, Sequence[float], str]],
    scores: Sequence[Sequence[float]],
    ties: TiePolicy = "official",
) -> BenchmarkReport:
    outcomes = [Outcome(scores=tuple(map(float, row))) for row in scores]
    return report(bench, items_of(rows), outcomes, model="m", ties=ties)


def test_card_D0_tie_policies() -> None:
    rows = [("a", (1, 0), ""), ("b", (1, 0), ""), ("c", (1, 0), "")]
    scores = [(2, 1), (1, 1), (0, 1)]
    assert evaluated(PAIRS, rows, scores).aggregates["overall"] == pytest.approx(1 / 3)
    assert evaluated(PAIRS, rows, scores, "half").aggregates["overall"] == 0.5
    assert evaluated(PAIRS, rows, scores).counts["ties"] == 1


def accuracies(subset: str, right: int, total: int) -> tuple[Rows, list[list[float]]]:
    rows: Rows = [(f"{subset}-{n}", (1.0, 0.0), subset) for n in range(total)]
    return rows, [[1.0, 0.0] if n < right else [0.0, 1.0] for n in range(total)]


def test_card_D1_sections_are_weighted_by_fixed_counts() -> None:
    """0.9 on a subset of weight 100 and 0.5 on one of 37; math-prm weighs 984 however many rows it has."""
    rows: Rows = []
    scores: list[Sequence[float]] = []
    for subset, right, total in (
        ("llmbar-natural", 9, 10),  # weight 100
        ("mt-bench-hard", 1, 2),  # weight 37
        ("math-prm", 4, 5),
        *((f"hep-{name}", 9, 10) for name in ("cpp", "go", "java", "js", "python", "rust")),
    ):
        mine, theirs = accuracies(subset, right, total)
        rows += mine
        scores += theirs
    found = evaluated(REWARDBENCH, rows, scores).aggregates
    assert found["Chat Hard"] == pytest.approx(0.791971, abs=1e-6)
    assert found["Reasoning"] == pytest.approx(0.85)
    assert found["overall"] == pytest.approx((0.7919708029 + 0.85) / 2)
    assert found["math-prm"] == 0.8


def test_card_D1b_overall_is_the_mean_of_four_sections() -> None:
    assert np.mean([95.8, 91.4, 92.0, 96.1]) == pytest.approx(93.825)
    rows: Rows = []
    scores: list[Sequence[float]] = []
    for subset, right in (("alpacaeval-easy", 958), ("llmbar-natural", 914), ("donotanswer", 920), ("hep-go", 961)):
        mine, theirs = accuracies(subset, right, 1000)
        rows += mine
        scores += theirs
    assert evaluated(REWARDBENCH, rows, scores).aggregates["overall"] == pytest.approx(0.93825)


@pytest.mark.parametrize(
    ("scores", "worth"), [((3, 1, 2, 0), 1.0), ((3, 3, 1, 0), 0.5), ((3, 3, 3, 3), 0.25), ((2, 3, 1, 0), 0.0)]
)
def test_card_D2_row_score(scores: Sequence[float], worth: float) -> None:
    assert row_score(scores, 1) == worth
    found = evaluated(REWARDBENCH_2, [("x", (1, 0, 0, 0), "Focus")], [scores]).aggregates
    assert found["Focus"] == found["overall"] == worth


TIES = [
    ("ref:0", (1.0, 0.0, 0.0), "Ties"),
    ("ref:1", (1.0, 0.0, 0.0), "Ties"),
    ("tied:0", (1.0, 1.0, 1.0, 0.0, 0.0), "Ties"),
    ("tied:1", (1.0, 1.0, 0.0, 0.0), "Ties"),
]


def test_card_D2b_ties() -> None:
    found = evaluated(REWARDBENCH_2, TIES, [(5, 2, 1), (3, 3.5, 0), (4, 4.5, 4.2, 1, 2), (3, 5, 2.5, 0)]).aggregates
    assert found["Ties/tied_accuracy"] == 1.0
    assert found["Ties/ref_accuracy"] == 0.5
    assert found["Ties/preferred"] == 0.5
    assert found["Ties/preferred_hard"] == 0.5
    assert found["Ties/margin"] == pytest.approx(0.073386, abs=1e-6)
    assert found["Ties"] == pytest.approx(0.650734, abs=1e-6)
    equal = evaluated(REWARDBENCH_2, TIES, [[1.0] * len(gold) for _, gold, _ in TIES]).aggregates
    assert equal["Ties"] == 0.0


def test_card_D2b_a_spread_of_zero_with_a_positive_margin_is_full_marks() -> None:
    found = evaluated(REWARDBENCH_2, TIES, [(5, 2, 1), (5, 2, 1), (4, 4, 4, 1, 2), (5, 5, 2, 0)]).aggregates
    assert found["Ties/margin"] == 1.0
    assert found["Ties"] == pytest.approx(1.01)


def test_card_D3_matrix() -> None:
    scores = [(2, 2.5, 3, 1, 2.2, 2.8), (0.5, 1, 1.5, 0.7, 0.2, 1.0)]
    gold = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    found = evaluated(RM_BENCH, [("a", gold, "chat"), ("b", gold, "chat")], scores).aggregates
    styles = ("concise", "detailed", "markdown")
    matrix = [[found[f"chat/{i}>{j}"] or 0.0 for j in styles] for i in styles]
    assert matrix == [[0.5, 0.5, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]
    assert found["chat/easy"] == 1.0
    assert found["chat/normal"] == pytest.approx(0.833333, abs=1e-6)
    assert found["chat/hard"] == pytest.approx(0.166667, abs=1e-6)
    assert found["chat"] == found["overall"] == pytest.approx(np.mean(matrix))


def test_card_D3_overall_is_a_mean_over_domains_and_safety_pools_its_parts() -> None:
    gold = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    rows = [
        ("a", gold, "chat"),
        ("b", gold, "safety-refuse"),
        ("c", gold, "safety-refuse"),
        ("d", gold, "safety-response"),
    ]
    right, wrong = (3, 3, 3, 0, 0, 0), (0, 0, 0, 3, 3, 3)
    found = evaluated(RM_BENCH, rows, [right, right, right, wrong]).aggregates
    assert (found["safety-refuse"], found["safety-response"]) == (1.0, 0.0)
    assert found["safety"] == pytest.approx(2 / 3)
    assert found["overall"] == found["hard"] == pytest.approx((1 + 2 / 3) / 2)


def test_card_D3_a_cell_over_all_domains_has_the_interval_of_a_mean_of_means() -> None:
    """Unequal domains: 1/4 of the sum of p (1 - p) / n is its variance, whatever share of the prompts a domain has."""
    gold = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    sizes = {"chat": (200, 0.3), "code": (60, 0.8)}
    rows, scores = [], []
    for domain, (count, share) in sizes.items():
        for n in range(count):
            rows.append((f"{domain}{n}", gold, domain))
            scores.append((float(n < count * share), 2.0, 2.0, 0.5, 0.5, 0.5))
    found = evaluated(RM_BENCH, rows, scores)
    name = "overall/concise>detailed"
    assert found.aggregates[name] == pytest.approx((0.3 + 0.8) / 2)
    spread = 1.96 * np.sqrt((0.3 * 0.7 / 200 + 0.8 * 0.2 / 60) / 4)
    interval = found.intervals[name]
    assert interval.method == "clustered"
    assert (interval.low, interval.high) == pytest.approx((0.55 - spread, 0.55 + spread), abs=0.01)
    assert "overall/detailed>concise" not in found.intervals, "all right everywhere: no draw differs"
    one = evaluated(RM_BENCH, rows[:200], scores[:200])
    assert one.intervals[name] == one.intervals["chat/concise>detailed"]
    assert one.intervals[name].method == "wilson"


def test_card_D3_constant_and_length_scorers() -> None:
    gold = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    constant = evaluated(RM_BENCH, [("a", gold, "math")], [(1,) * 6]).aggregates
    assert set(constant.values()) == {0.0}
    length = evaluated(RM_BENCH, [("a", gold, "math")], [(1, 2, 3, 1, 2, 3)]).aggregates
    assert (length["easy"], length["normal"], length["hard"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("games", "right"),
    [
        (("A>B", "A>B"), True),
        (("A>B", "B>A"), False),
        (("A>B", None), True),
        ((None, None), False),
        (("A=B", "A=B"), False),
        (("A>B", "A=B"), True),
        (("B>A", None), False),
    ],
)
def test_card_D4_two_games(games: tuple[str | None, str | None], right: bool) -> None:
    assert games_right(games, "A>B") is right
    items = items_of([("a", (1, 0), "math"), ("b", (0, 1), "math")])
    swapped = tuple({"A>B": "B>A", "B>A": "A>B"}.get(g or "", g) for g in games)
    found = report(JUDGEBENCH, items, [Outcome(decisions=games), Outcome(decisions=swapped)], model="judge")
    assert found.aggregates["overall"] == float(right)
    assert found.aggregates["both_right"] == float(games == ("A>B", "A>B"))


def test_card_D4_a_constant_scorer_gets_the_share_of_B() -> None:
    """350 pairs, 193 labelled A>B and 157 B>A: equal scores decide B>A."""
    rows = [(f"{n}", (1, 0) if n < 193 else (0, 1), "knowledge") for n in range(350)]
    found = evaluated(JUDGEBENCH, rows, [(0.0, 0.0)] * 350)
    assert found.aggregates["overall"] == 157 / 350
    assert evaluated(JUDGEBENCH, rows, [(0.0, 0.0)] * 350, "half").aggregates["overall"] == 0.5


def test_card_A3b_pooled_and_category_mean_differ() -> None:
    """Weights 154, 98, 56, 42 on the GenRM's accuracies 74.6, 85.7, 85.7, 90.5."""
    rows: Rows = []
    scores: list[Sequence[float]] = []
    for part, total, right in (("knowledge", 154, 115), ("reasoning", 98, 84), ("math", 56, 48), ("coding", 42, 38)):
        rows += [(f"{part}-{n}", (1, 0), part) for n in range(total)]
        scores += [(1.0, 0.0) if n < right else (0.0, 1.0) for n in range(total)]
    found = evaluated(JUDGEBENCH, rows, scores).aggregates
    assert found["overall"] == found["pooled"] == 285 / 350
    assert round(100 * (found["overall"] or 0), 1) == 81.4
    assert round(100 * (found["category_mean"] or 0), 1) == 84.1
    weights, published = np.array([154, 98, 56, 42]), np.array([74.6, 85.7, 85.7, 90.5])
    assert (weights * published).sum() / weights.sum() == pytest.approx(81.392, abs=1e-9)
    assert published.mean() == pytest.approx(84.125)


def test_card_D5_lists_and_pairs() -> None:
    lists: list[tuple[Sequence[float], Sequence[float]]] = [
        ((1, 0, 0), (3, 1, 2)),
        ((1, 0, 0), (2, 2, 0)),
        ((1, 0, 0), (1, 0.5, 1.5)),
    ]
    rows: Rows = [(f"l{n}", gold, "bon_helpfulness") for n, (gold, _) in enumerate(lists)]
    scores: list[Sequence[float]] = [row for _, row in lists]
    for _, row in lists:
        rows += [
            (f"p{len(rows)}", (1, 0), "pairwise_helpfulness"),
            (f"p{len(rows) + 1}", (1, 0), "pairwise_helpfulness"),
        ]
        scores += [(row[0], row[1]), (row[0], row[2])]
    found = evaluated(RMB, rows, scores).aggregates
    assert found["bon_helpfulness"] == pytest.approx(0.333333, abs=1e-6)
    assert found["pairwise_helpfulness"] == pytest.approx(0.666667, abs=1e-6)
    assert found["overall"] == pytest.approx(0.5)
    rows += [("h", (1, 0), "pairwise_harmlessness")]
    assert evaluated(RMB, rows, [*scores, (1, 0)]).aggregates["overall"] == pytest.approx(2 / 3)


def test_card_D6_separability_and_agreement() -> None:
    proxy = [(0.70, 0.74), (0.60, 0.66), (0.73, 0.78)]
    assert separability(proxy) == pytest.approx(0.666667, abs=1e-6)
    same_order = [(0.5, 0.6), (0.1, 0.2), (0.8, 0.9)]
    assert confidence_agreement(same_order, proxy) == pytest.approx(2 / 3)
    assert confidence_agreement([(-b, -a) for a, b in same_order], proxy) == pytest.approx(-2 / 3)


def test_card_D6_area_under_the_curve() -> None:
    assert auc((0.9, 0.8, 0.7, 0.4, 0.8), (1, 0, 1, 0, 1)) == 0.75
    assert auc((1, 2), (1, 1)) is None


def test_card_D8_best_of_n() -> None:
    proxy, gold = (0.1, 0.5, 0.3, 0.9), (1.0, 3.0, 2.0, 0.0)
    found = expected_best(proxy, gold)
    assert found == pytest.approx([1.5, 1.333333, 0.75, 0.0], abs=1e-6)
    for n in range(1, 5):
        subsets = list(combinations(range(4), n))
        by_hand = np.mean([gold[max(subset, key=lambda i: proxy[i])] for subset in subsets])
        assert found[n - 1] == pytest.approx(by_hand)
    assert [kl_best_of(n) for n in (1, 2, 4, 16)] == pytest.approx([0, 0.193147, 0.636294, 1.835089], abs=1e-6)


def test_card_D8_pass_at_k_is_best_of_k_by_a_perfect_proxy() -> None:
    gold = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    assert expected_best(gold, gold) == pytest.approx([1 - math.comb(4, k) / math.comb(6, k) for k in range(1, 7)])
    assert expected_best((1, 0, 0, 0), (1, 0, 0, 0))[1] == pytest.approx(0.5)
    assert expected_best([0.0] * 6, gold) == pytest.approx([1 / 3] * 6), "equal proxy scores choose at random"
    many = [float(n) for n in range(500)]
    assert expected_best(many, many)[[0, 249, 499]] == pytest.approx([249.5, 501 * 250 / 251 - 1, 499.0])


def test_card_D9_rank_correlations() -> None:
    assert kendall_tau_b((1, 2, 3, 4, 5), (2, 1, 4, 3, 5)) == pytest.approx(0.6)
    assert spearman((1, 2, 3, 4, 5), (2, 1, 4, 3, 5)) == pytest.approx(0.8)
    assert kendall_tau_b((1, 2, 3, 4, 5), (1, 2, 2, 3, 4)) == pytest.approx(0.948683, abs=1e-6)
    assert spearman((1, 2, 3, 4, 5), (1, 2, 2, 3, 4)) == pytest.approx(0.974679, abs=1e-6)
    assert kendall_tau_b((1, 1, 1), (1, 2, 3)) == spearman((1, 1, 1), (1, 2, 3)) == 0.0
    x = (3.0, 1.0, 2.5, 7.0)
    assert kendall_tau_b(x, [math.exp(v) for v in x]) == 1.0
    assert spearman(x, [-v for v in x]) == pytest.approx(-1.0)
