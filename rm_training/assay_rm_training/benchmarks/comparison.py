"""Several models on the same items: differences of every aggregate from the first model's, with paired intervals.

The bootstrap draws the same prompts for both models, over the items that both have a score of. Leaves out: aggregates
that are not a function of per-item figures (PPE's figures over models).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay_rm_training.benchmarks.benchmark import Benchmark, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.report import reduce
from assay_rm_training.benchmarks.strata import percentile_interval, resampled_means


@dataclass(frozen=True)
class AggregateDifference:
    """An aggregate of `model` minus that of the reference, on the items both have; `low`, `high`: 95 %."""

    value: float
    low: float
    high: float

    @property
    def settled(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class ModelComparison:
    """`differences` by aggregate. `items`: number scored by both models."""

    reference: str
    model: str
    items: int
    differences: Mapping[str, AggregateDifference]

    def to_dict(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "model": self.model,
            "items": self.items,
            "differences": {
                name: {"difference": d.value, "low": d.low, "high": d.high} for name, d in self.differences.items()
            },
        }


def compare(
    benchmark: Benchmark,
    items: Sequence[BenchmarkItem],
    reference: tuple[str, Sequence[Outcome]],
    model: tuple[str, Sequence[Outcome]],
    *,
    ties: TiePolicy = "official",
    seed: int = 0,
) -> ModelComparison:
    """Differences over the items that neither failed on; empty where there is none."""
    both = [
        (item, a, b)
        for item, a, b in zip(items, reference[1], model[1], strict=True)
        if a.failure is None and b.failure is None
    ]
    if not both:
        return ModelComparison(reference[0], model[0], 0, {})
    scored_items = [item for item, _, _ in both]
    resampled = []
    for outcomes in ([a for _, a, _ in both], [b for _, _, b in both]):
        measured = benchmark.measure(ScoredItems(scored_items, outcomes, ties, seed=seed))
        values, _ = reduce(measured, seed=seed, intervals=False)
        resampled.append((values, measured.combine(resampled_means(measured.strata, seed=seed))))
    (old, old_draws), (new, new_draws) = resampled
    differences = {}
    for name, draws in new_draws.items():
        before, after = old.get(name), new.get(name)
        if before is None or after is None or name not in old_draws:
            continue
        interval = percentile_interval(draws - old_draws[name])
        if interval is not None:
            differences[name] = AggregateDifference(after - before, interval.low, interval.high)
    return ModelComparison(reference[0], model[0], len(both), differences)
