"""Protocols of lists: the best of n by the model, the order of all (tau), right from wrong (AUC).

`best-of-n`: gold of the response with the highest score, of equal ones their mean; `strict`: all of those with the
highest score have the highest gold; `mrr`: 1 / rank of the first response of the highest gold, ranked below those of
equal score; `random` and `oracle`: the mean and the highest gold. `strict` and `mrr` are RewardMATH's accuracy and MRR
(code read). `listwise`: tau-b and pair accuracy of a list; of named pairs (a preference graph) as IF-RewardBench does
(code read): (C - D) / sqrt((C + D) (C + D + T)), T pairs of equal scores.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from assay.statistics.rank_correlation import kendall_tau_b
from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy, win
from assay_rm_training.benchmarks.declared.declared_benchmark import DeclaredBenchmark, row_fault
from assay_rm_training.benchmarks.figures.best_of_n import curve, scored_lists
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.protocols.ppe import auc


class BestOfNLists(DeclaredBenchmark):
    """Lists whose responses have gold numbers, such as 1 for right and 0 for wrong."""

    columns = ("selected", "strict", "mrr", "random", "oracle")
    words: ClassVar[Mapping[str, str]] = {
        "unit": "list of responses with gold numbers",
        "correct_when": "selected: gold of the highest score; strict: no worse response has as high a score",
        "tie": "selected: the mean gold of those with the highest score; strict: wrong; mrr: ranked last of its equals",
    }

    def figures(self, case: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> list[float]:
        scores, gold = np.array(outcome.scores), np.array(case.gold)
        top, best = gold[scores == scores.max()], gold == gold.max()
        if best.all():
            strict = mrr = math.nan  # no response is worse
        else:
            strict = float((top == gold.max()).all())
            mrr = 1.0 / (1 + int((scores[~best] >= scores[best].max()).sum()))
        return [float(top.mean()), strict, mrr, float(gold.mean()), float(gold.max())]

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        figures = super().measure(scored)
        lists = scored_lists(zip(scored.items, scored.outcomes, strict=True))
        return replace(figures, curves=lambda: {"overall": curve(lists, seed=scored.seed)})


class Listwise(DeclaredBenchmark):
    """Lists whose gold numbers are grades, or whose pairs are named."""

    columns = ("tau_b", "accuracy")
    words: ClassVar[Mapping[str, str]] = {
        "unit": "list of responses, ordered by grades or by named pairs",
        "correct_when": "tau_b of scores and order within a list; accuracy: share of its pairs in the right order",
        "tie": "equal scores add to neither side of tau_b, and are wrong in the accuracy",
        "tie_half": "equal scores add to neither side of tau_b, and count 1/2 in the accuracy",
    }

    def check_item(self, case: BenchmarkItem) -> None:
        super().check_item(case)
        if not _pairs(case):
            raise row_fault(case, "no response of the list is better than another")

    def figures(self, case: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> list[float]:
        assert outcome.scores is not None
        scores, pairs = outcome.scores, _pairs(case)
        signs = [float(np.sign(scores[better] - scores[worse])) for better, worse in pairs]
        if case.pairs:
            decided = sum(sign != 0 for sign in signs)
            tau = sum(signs) / max(1.0, math.sqrt(decided * len(signs)))
        else:
            tau = kendall_tau_b(scores, case.gold)
        return [tau, sum(win(scores[b], scores[w], ties) for b, w in pairs) / len(pairs)]


class ItemAuc(DeclaredBenchmark):
    """The chance that a right response of a list has a higher score than a wrong one; lists of one kind have none."""

    columns = ("auc",)
    words: ClassVar[Mapping[str, str]] = {
        "unit": "list of responses that are right (gold above 1/2) or wrong",
        "correct_when": "score(right) > score(wrong), over all such pairs of a list",
        "tie": "counts 1/2",
    }

    def figures(self, case: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> list[float]:
        assert outcome.scores is not None
        area = auc(outcome.scores, case.gold)
        return [math.nan if area is None else area]


def _pairs(case: BenchmarkItem) -> list[tuple[int, int]]:
    numbered = list(enumerate(case.gold))
    return list(case.pairs) or [(i, j) for i, better in numbered for j, worse in numbered if better > worse]
