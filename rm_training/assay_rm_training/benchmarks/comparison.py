"""Several models on the same items: differences of every aggregate from the first model's, with paired intervals.

The differences are taken by prompt, over the items that both have a score of. Leaves out: aggregates that are not a
function of per-item figures (PPE's figures over models).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.statistics.intervals import Interval
from assay_rm_training.benchmarks.benchmark import Benchmark, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.report import reduce
from assay_rm_training.benchmarks.strata import clustered_intervals


@dataclass(frozen=True)
class AggregateDifference:
    """An aggregate of `model` minus that of the reference, on the items both have; `low`, `high`: 95 %."""

    value: float
    low: float | None  #: None: undetermined
    high: float | None

    @property
    def interval(self) -> Interval | None:
        return None if self.low is None or self.high is None else Interval(self.low, self.high)

    @property
    def settled(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval is not None and (self.interval.low > 0 or self.interval.high < 0)


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
    old, new = (
        benchmark.measure(ScoredItems(scored_items, outcomes, ties, seed=seed))
        for outcomes in ([a for _, a, _ in both], [b for _, _, b in both])
    )
    before, after = (reduce(measured, seed=seed, intervals=False)[0] for measured in (old, new))
    differences = {}
    if not new.strata:  # figures over systems or models are no means of items
        return ModelComparison(reference[0], model[0], len(both), {})
    for name, interval in clustered_intervals(new.strata, new.combine, old.strata).items():
        values = before.get(name), after.get(name)
        if values[0] is not None and values[1] is not None:
            low, high = (None, None) if interval is None else (interval.low, interval.high)
            differences[name] = AggregateDifference(values[1] - values[0], low, high)
    return ModelComparison(reference[0], model[0], len(both), differences)
