"""ProcessBench: the first wrong step of a solution; and the best of n solutions by what their steps' scores come to.

Source: arXiv 2412.06559; the official scoring code was read (`run_eval_prm_trl.py`, `run_eval_prm_rlhflow.py` of
QwenLM/ProcessBench): the prediction is the first step whose label is "wrong", -1 where there is none; accuracy on the
solutions with an error and on those without, their harmonic mean (F1) for each part, and the mean of the parts' F1. A
step's score is read as a log-odds, so "wrong" is a score of 0 or less. For scores on another scale the paper sets the
threshold at the best F1 on GSM8K and uses it everywhere (recalled): `f1_tuned`.

Best of n: rows of one prompt with several responses in steps and what each is worth, as `assay step-values` writes
them. Each aggregation of step scores (log-odds: minimum, last, sum of log-probabilities, mean) picks one.

An item's responses are the beginnings of its solutions up to each step, which any model can score; a process reward
model reads each solution once (`steps`). Leaves out: generative critics that name a step.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from assay.models.readings import Stepwise
from assay_rm_training.benchmarks.benchmark import BenchmarkFigures, ScoredItem, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, Record
from assay_rm_training.benchmarks.published import PublishedBenchmark
from assay_rm_training.benchmarks.strata import Floats, Means, NamedInterval, mean_of

PARTS = ("gsm8k", "math", "olympiadbench", "omnimath")
ERROR, CORRECT = "error", "correct"


def first_error(scores: Sequence[float], threshold: float = 0.0) -> int:
    """The first step whose score is not above the threshold; -1 where there is none."""
    return next((number for number, score in enumerate(scores) if not score > threshold), -1)


def f1(error: float, correct: float) -> float:
    """Harmonic mean of the two accuracies; 0 where both are."""
    return 2 * error * correct / (error + correct) if error + correct else 0.0


def prefixes(steps: Sequence[str]) -> tuple[str, ...]:
    """The text up to the end of each step, with an empty line between steps."""
    return tuple(accumulate(steps, lambda before, step: f"{before}\n\n{step}"))


class ProcessBench(PublishedBenchmark, name="processbench"):
    def read(self, record: Record) -> BenchmarkItem:
        steps, label = record.texts("steps"), record.get("label")
        if not steps:
            raise record.error("no steps", "steps")
        if not isinstance(label, int) or isinstance(label, bool) or not -1 <= label < len(steps):
            raise record.error("not the number of a step, or -1 for none", "label")
        row_id = record.identity("id")
        part = next((name for name in PARTS if row_id.startswith(f"{name}-")), None)
        return BenchmarkItem(
            id=row_id,
            prompt=record.prompt("problem"),
            responses=prefixes(steps),
            gold=tuple(float(label == -1 or number < label) for number in range(len(steps))),
            part=part or str(record.values.get("domain") or "all"),
            steps=(steps,),
        )

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        assert outcome.scores is not None
        return float(first_error(outcome.scores) == _label(item))

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        def kind(item: BenchmarkItem) -> str:
            return f"{item.part}/{CORRECT if _label(item) < 0 else ERROR}"

        parts = dict.fromkeys([*PARTS, *(item.part for item in scored.items)])
        figures = self.pooled(scored, kind, lambda name: (name,), _with_f1)
        return BenchmarkFigures(
            figures.strata,
            figures.combine,
            shares=figures.shares,
            sizes=figures.sizes,
            extra_figures=lambda: _tuned(scored.grouped(lambda item: item.part)),
            missing=[p for p in parts if not {f"{p}/{ERROR}", f"{p}/{CORRECT}"} <= figures.shares.keys()],
        )


def _label(item: BenchmarkItem) -> int:
    return first_error(item.gold)


def _with_f1(out: dict[str, Floats]) -> dict[str, Floats]:
    parts = dict.fromkeys(name.rpartition("/")[0] for name in out)
    both = {part: (out.get(f"{part}/{ERROR}"), out.get(f"{part}/{CORRECT}")) for part in parts}
    by_part: dict[str, Floats] = {}
    for part, (error, correct) in both.items():
        if error is not None and correct is not None:
            total = error + correct
            by_part[f"{part}/f1"] = np.where(total > 0, 2 * error * correct / np.where(total > 0, total, 1.0), 0.0)
    return ({"f1": mean_of(list(by_part.values()))} if by_part else {}) | by_part | out


def _tuned(by_part: Mapping[str, Sequence[ScoredItem]]) -> dict[str, tuple[float, NamedInterval | None]]:
    """The mean F1 with the threshold that is best on the first part, which is GSM8K where it is there."""
    parts = sorted(by_part, key=lambda part: PARTS.index(part) if part in PARTS else len(PARTS))
    rows = {
        part: [(_label(solution), outcome.scores) for solution, outcome in by_part[part] if outcome.scores is not None]
        for part in parts
    }
    rows = {part: listed for part, listed in rows.items() if {label < 0 for label, _ in listed} == {True, False}}
    if not rows:
        return {}
    first = next(iter(rows.values()))
    levels = sorted({score for _, scores in first for score in scores})
    middles = [(a + b) / 2 for a, b in pairwise(levels)]
    candidates = [levels[0] - 1.0, *middles[:: max(1, len(middles) // 200)], levels[-1] + 1.0]
    threshold = max(candidates, key=lambda level: _f1_at(first, level))
    figures = {f"f1_tuned/{part}": (_f1_at(listed, threshold), None) for part, listed in rows.items()}
    overall = math.fsum(mean for mean, _ in figures.values()) / len(figures)
    return {"f1_tuned": (overall, None), "threshold": (threshold, None), **figures}


def _f1_at(rows: Sequence[tuple[int, Sequence[float]]], threshold: float) -> float:
    right: dict[bool, list[bool]] = {True: [], False: []}
    for label, scores in rows:
        right[label >= 0].append(first_error(scores, threshold) == label)
    error, correct = (sum(verdicts) / len(verdicts) for verdicts in right.values())
    return f1(error, correct)


#: Name -> what the log-odds of a solution's steps come to.
AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": Stepwise(aggregation="min").aggregate,
    "last": Stepwise(aggregation="last").aggregate,
    "product": Stepwise(aggregation="product").aggregate,
    "mean": lambda log_odds: math.fsum(log_odds) / len(log_odds),
}


class ProcessBestOfN(PublishedBenchmark, name="process-best-of-n"):
    def read(self, record: Record) -> BenchmarkItem | None:
        rows = record.get("responses")
        if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
            raise record.error("not a list of objects with steps and reward", "responses")
        steps, worth = [], list[float]()
        for row in rows:
            listed, reward = row.get("steps"), row.get("reward")
            if not isinstance(listed, list | tuple) or not all(isinstance(step, str) for step in listed):
                raise record.error("not a list of texts", "responses.steps")
            if isinstance(reward, bool) or not isinstance(reward, int | float):
                raise record.error("not a number", "responses.reward")
            cut = tuple(text for step in listed if (text := step.strip()))
            if cut:
                steps.append(cut)
                worth.append(float(reward))
        if len(steps) < 2:
            return None  # nothing to choose from
        return BenchmarkItem(
            id=str(record.values.get("id") or record.row),
            prompt=record.prompt("prompt"),
            responses=tuple(text for row in steps for text in prefixes(row)),
            gold=tuple(reward for row, reward in zip(steps, worth, strict=True) for _ in row),
            steps=tuple(steps),
        )

    def credit(self, item: BenchmarkItem, outcome: Outcome, ties: TiePolicy) -> float:
        assert outcome.scores is not None
        return _chosen(item, outcome.scores)["min"]

    def measure(self, scored: ScoredItems) -> BenchmarkFigures:
        columns = (*AGGREGATIONS, "random", "oracle")

        def figures(item: BenchmarkItem, scores: Sequence[float]) -> list[float]:
            return list(_chosen(item, scores).values())

        strata = scored.strata({"all": list(zip(scored.items, scored.outcomes, strict=True))}, columns, figures)

        def combine(means: Means) -> dict[str, Floats]:
            return {column: means[f"all/{column}"] for column in columns if f"all/{column}" in means}

        return BenchmarkFigures(strata, combine, sizes=dict.fromkeys(columns, sum(len(one.values) for one in strata)))


def _chosen(item: BenchmarkItem, scores: Sequence[float]) -> dict[str, float]:
    """Worth of the response that each aggregation picks (of equal ones their mean), of a random one, of the best."""
    ends = list(accumulate(len(row) for row in item.steps))
    starts = [0, *ends[:-1]]
    worth = [item.gold[start] for start in starts]
    out = {}
    for name, aggregate in AGGREGATIONS.items():
        totals = [aggregate(scores[start:end]) for start, end in zip(starts, ends, strict=True)]
        best = [reward for total, reward in zip(totals, worth, strict=True) if total == max(totals)]
        out[name] = math.fsum(best) / len(best)
    return {**out, "random": math.fsum(worth) / len(worth), "oracle": max(worth)}


BENCHMARK = ProcessBench()
BEST_OF_N = ProcessBestOfN()
