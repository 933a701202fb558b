"""Protocols of two responses: which is better (`pair`), or whether neither is (`three-way`).

Scores and pairwise judges. A judge plays two games, the second with the responses exchanged: its verdict is the sign of
their sum. A scalar model says a tie where its scores differ by at most a margin; where the description has none, it is
the one with the best accuracy on the other half of the prompts, so that no item has a say in its own. Macro figures are
unweighted means over the three classes, as in PandaLM's scorer (code read); a class never named has precision 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItems, TiePolicy, cluster_of
from assay_rm_training.benchmarks.declared.declared_benchmark import DeclaredBenchmark, right, row_fault, verdict
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.protocols.ppe import auc
from assay_rm_training.benchmarks.strata import NamedInterval

CANDIDATES = 200  #: margins tried
Margins = Mapping[str, float]


class DeclaredPairs(DeclaredBenchmark):
    """Accuracy on decided pairs; tied ones are refused, as they have no right answer here."""

    columns = ("accuracy",)
    pairwise = True
    takes_decisions = True
    words: ClassVar[Mapping[str, str]] = {
        "unit": "pair",
        "correct_when": "score(better) > score(worse)",
        "tie": "wrong",
        "tie_half": "counts 1/2",
    }

    def check_item(self, case: BenchmarkItem) -> None:
        super().check_item(case)
        if case.gold[0] == case.gold[1]:
            raise row_fault(case, "neither response is better; the protocol of pairs with ties is three-way")

    def figures(self, case: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> list[float]:
        return [right(case.gold, verdict(outcome), ties)]


class ThreeWay(DeclaredBenchmark):
    """Accuracy over first, second and tie; `decided`: of the pairs that are no tie, by the sign alone."""

    columns = ("accuracy", "decided")
    pairwise = True
    takes_decisions = True
    words: ClassVar[Mapping[str, str]] = {
        "unit": "pair, of three classes: first, second, tie",
        "correct_when": "the class is right; scores say a tie where they differ by at most the margin",
        "tie": "margin 0 counts equal scores alone; without a margin in the description: chosen on other prompts",
    }
    _margins: Margins = MappingProxyType({})

    def figures(self, case: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> list[float]:
        predicted = verdict(outcome, self._margins.get(_half(case), self.described.margin or 0.0))
        return [float(predicted == _class(case)), right(case.gold, verdict(outcome), ties)]

    def fitted(self, scored: ScoredItems) -> "ThreeWay":
        fitted = ThreeWay(self.described)  # the margins belong to this model's scores
        if self.described.margin is None:
            fitted._margins = {half: _best_margin(scored, half) for half in ("0", "1")}
        return fitted

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        fitted = self.fitted(scored)
        figures = super(ThreeWay, fitted).measure(scored)
        return replace(figures, extra_figures=lambda: fitted._over_classes(scored))

    def _over_classes(self, scored: ScoredItems) -> dict[str, tuple[float, NamedInterval | None]]:
        """Macro figures, and how well small differences of scores find the ties."""
        members = [(i, o) for i, o in zip(scored.items, scored.outcomes, strict=True) if o.failure is None]
        gold = np.array([_class(case) for case, _ in members])
        verdicts = np.array([verdict(o, self._margins.get(_half(i), self.described.margin or 0.0)) for i, o in members])
        out: dict[str, tuple[float, NamedInterval | None]] = {}
        by_class = [_class_figures(gold == one, verdicts == one) for one in (1.0, 0.0, 0.5)]
        for name, values in zip(("precision", "recall", "f1"), zip(*by_class, strict=True), strict=True):
            out[f"macro_{name}"] = float(np.mean(values)), None
        if all(o.scores is not None for _, o in members):
            gaps = np.array([abs(o.scores[0] - o.scores[1]) for _, o in members if o.scores is not None])
            area = auc((-gaps).tolist(), (gold == 0.5).tolist())
            out["tie_auc"] = math.nan if area is None else area, None
            out["margin"] = float(np.mean([self._margins.get(h, self.described.margin or 0.0) for h in "01"])), None
        return out


def _class(case: BenchmarkItem) -> float:
    return 0.5 + 0.5 * float(np.sign(case.gold[0] - case.gold[1]))


def _half(case: BenchmarkItem) -> str:
    return str(int(cluster_of(case)[-1], 16) % 2)


def _best_margin(scored: ScoredItems, half: str) -> float:
    """For items of this half: the margin of the best accuracy on the other one, the smallest of equals."""
    other = [
        (_class(case), outcome.scores[0] - outcome.scores[1])
        for case, outcome in zip(scored.items, scored.outcomes, strict=True)
        if outcome.scores is not None and _half(case) != half
    ]
    if not other:
        return 0.0
    gold, differences = (np.array(values) for values in zip(*other, strict=True))
    gaps = np.unique(np.abs(differences))
    between = np.r_[0.0, (gaps[1:] + gaps[:-1]) / 2, gaps[-1]]
    tried = np.unique(np.quantile(between, np.linspace(0, 1, CANDIDATES), method="lower"))
    verdicts = np.where(np.abs(differences)[None, :] <= tried[:, None], 0.5, (differences > 0).astype(float)[None, :])
    return float(tried[int(np.argmax((verdicts == gold).mean(axis=1)))])


def _class_figures(gold: Sequence[bool], verdicts: Sequence[bool]) -> tuple[float, float, float]:
    """Precision, recall and F1 of one class, 0 where undefined."""
    truth, positive = np.asarray(gold), np.asarray(verdicts)
    both = float((truth & positive).sum())
    precision = both / positive.sum() if positive.any() else 0.0
    recall = both / truth.sum() if truth.any() else 0.0
    return float(precision), float(recall), 2 * precision * recall / (precision + recall) if both else 0.0
