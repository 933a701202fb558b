"""The report of one benchmark evaluation: aggregates, intervals, counts, failures, a description of the protocol.

Covers: reading the items, reducing a protocol's figures, aggregates with failed items as wrong, the dictionary that
`--json` prints. Leaves out: getting scores (`recorded.py`, `scoring.py`), several models (`comparison.py`), the store.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from assay.errors import BadInputError
from assay.runs.coverage import Coverage
from assay_rm_training.benchmarks.benchmark import Benchmark, BenchmarkFigures, CurvePoint, ScoredItems, TiePolicy
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome, with_unique_keys
from assay_rm_training.benchmarks.records import Source, read_files, read_hub
from assay_rm_training.benchmarks.strata import (
    NamedInterval,
    Stratum,
    clustered_intervals,
    mean_interval,
    means,
    share_interval,
)

FAILED_SHOWN = 20


@dataclass(frozen=True)
class BenchmarkItems:
    """The items of a benchmark. `skipped`: rows without an item; `repeated`: rows found in two files."""

    items: tuple[BenchmarkItem, ...]
    sources: tuple[Source, ...]
    skipped: int = 0
    repeated: int = 0


@dataclass(frozen=True)
class BenchmarkReport:
    """One model's result. None is an aggregate without value (a part without scored items).

    `failed_as_wrong`: the aggregates if failed items had no credit at all, where any failed. `truncated_share`: of the
    scored items, None where unknown. `missing`: parts of the benchmark without any scored item.
    """

    bench: str
    model: str
    aggregates: Mapping[str, float | None]
    intervals: Mapping[str, NamedInterval]
    sizes: Mapping[str, int]
    counts: Mapping[str, int]
    failures: Mapping[str, int]
    failed_items: Sequence[Mapping[str, str]]
    failed_as_wrong: Mapping[str, float | None]
    truncated_share: float | None
    protocol: Mapping[str, str]
    curves: Mapping[str, Sequence[CurvePoint]]
    missing: Sequence[str]
    seed: int
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def coverage(self) -> Coverage:
        """Of the items; `truncated` counts scored ones, None where the scores do not say."""
        return Coverage(
            self.counts["items"],
            self.counts["scored"],
            "items",
            self.failures,
            self.counts["truncated"] if self.truncated_share is not None else None,
        )

    @property
    def warnings(self) -> list[str]:
        """What must stand beside the aggregates."""
        return self.coverage.of_evaluation()

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it; see docs/reward-models/evaluation.md for every name."""
        return {
            "bench": self.bench,
            "model": self.model,
            "aggregates": dict(self.aggregates),
            "intervals": {name: interval.to_dict() for name, interval in self.intervals.items()},
            "sizes": dict(self.sizes),
            "counts": dict(self.counts),
            "failures": dict(self.failures),
            "failed_items": list(self.failed_items),
            "aggregates_failures_wrong": dict(self.failed_as_wrong) or None,
            "truncated_share": self.truncated_share,
            "coverage": self.coverage.share,
            "ranked": self.coverage.ranked,
            "warnings": self.warnings,
            "complete": not self.missing,
            "missing": list(self.missing),
            "protocol": dict(self.protocol),
            "curves": {name: [asdict(point) for point in points] for name, points in self.curves.items()},
            "seed": self.seed,
            **self.details,
        }


def read_items(benchmark: Benchmark, paths: Sequence[Path], *, limit: int = 0) -> BenchmarkItems:
    """The items of the files and folders; without any, of the hub. `limit`: the first N items, 0 = all."""
    if paths := paths or [Path(path) for path in benchmark.rows]:
        records, sources = read_files(paths, constants=benchmark.constants)
    elif benchmark.hub:
        hint = benchmark.obtain or "or name the publisher's files with --path"
        records, sources = read_hub(benchmark.hub, offline_hint=hint)
    else:
        raise BadInputError(f"{benchmark.title} is not on the hub; {benchmark.obtain}", field="--path")
    read = benchmark.read_all(records)
    items, repeated = with_unique_keys(read)
    benchmark.check(items)
    selected = tuple(items[:limit] if limit else items)
    return BenchmarkItems(selected, tuple(sources), skipped=max(0, len(records) - len(read)), repeated=repeated)


def report(
    benchmark: Benchmark,
    items: Sequence[BenchmarkItem],
    outcomes: Sequence[Outcome],
    *,
    model: str,
    ties: TiePolicy = "official",
    seed: int = 0,
    knows_truncation: bool = True,
    extra_counts: Mapping[str, int] | None = None,
    details: Mapping[str, Any] | None = None,
) -> BenchmarkReport:
    """Reduce one model's outcomes, one per item. Raises BadInputError where not one item has an outcome."""
    failures = Counter(outcome.failure for outcome in outcomes if outcome.failure is not None)
    scored = len(items) - failures.total()
    truncated = sum(outcome.truncated for outcome in outcomes if outcome.failure is None)
    if not scored:
        why = ", ".join(f"{count} {code}" for code, count in failures.items())
        hint = "; a model of a longer trained length is needed" if "too_long" in failures else ""
        raise BadInputError(f"not one of the {len(items)} items of {benchmark.title} has scores: {why}{hint}")
    scored_items = ScoredItems(items, outcomes, ties, seed=seed)
    measured = benchmark.measure(scored_items)
    aggregates, intervals = reduce(measured, seed=seed)
    worse: dict[str, float | None] = {}
    if failures:
        worse = reduce(benchmark.measure(replace(scored_items, failed_as_wrong=True)), seed=seed, intervals=False)[0]
    return BenchmarkReport(
        bench=benchmark.name,
        model=model,
        aggregates=aggregates,
        intervals=intervals,
        sizes={"overall": scored, **measured.sizes},
        counts={
            "items": len(items),
            "scored": scored,
            "failed": failures.total(),
            "truncated": truncated,
            **measured.counts,
            **(extra_counts or {}),
        },
        failures=dict(failures),
        failed_items=[
            {"id": item.key, "failure": outcome.failure}
            for item, outcome in zip(items, outcomes, strict=True)
            if outcome.failure is not None
        ][:FAILED_SHOWN],
        failed_as_wrong=worse,
        truncated_share=truncated / scored if knows_truncation else None,
        protocol={
            "source": benchmark.source,
            "values": "shares, 0 to 1",
            "tie_policy": ties,
            **benchmark.statement(ties),
        },
        curves=measured.curves(),
        missing=measured.missing,
        seed=seed,
        details=details or {},
    )


def reduce(
    measured: BenchmarkFigures, *, seed: int, intervals: bool = True
) -> tuple[dict[str, float | None], dict[str, NamedInterval]]:
    """Values and intervals by name. A share is successes / items exactly, not a mean of means.

    Without `intervals` also without `extra_figures`.
    """
    plain = measured.combine(means(measured.strata)) if measured.strata else {}
    values = {name: _number(array) for name, array in plain.items()}
    by_name = {stratum.name: stratum for stratum in measured.strata}
    parts = {
        name: [(by_name[stratum], column) for stratum, column in members if stratum in by_name]
        for name, members in measured.shares.items()
    }
    for name, members in parts.items():
        if name in values and members:
            values[name] = _pooled(members)
    if not intervals:
        return values, {}
    all_intervals: dict[str, NamedInterval | None] = {}
    for name, (value, interval) in measured.extra_figures().items():
        values[name] = value if np.isfinite(value) else None
        all_intervals[name] = interval
    for name, members in parts.items():
        if name in values and members:
            all_intervals[name] = share_interval(members) or mean_interval(*_known_values(members))
    without_interval = [name for name in plain if name not in all_intervals]
    if without_interval:
        clustered = clustered_intervals(measured.strata, measured.combine)
        all_intervals.update({name: clustered[name] for name in without_interval if values[name] is not None})
    ordered = {name: all_intervals.get(name) for name in values}
    return values, {name: i for name, i in ordered.items() if i is not None}


def _number(array: Any) -> float | None:
    value = float(np.asarray(array).reshape(-1)[0])
    return value if np.isfinite(value) else None


def _known_values(members: Sequence[tuple[Stratum, str]]) -> tuple[list[float], list[str]]:
    values: list[float] = []
    clusters: list[str] = []
    for stratum, column in members:
        for value, cluster in zip(stratum.column(column), stratum.clusters, strict=True):
            if not np.isnan(value):
                values.append(float(value))
                clusters.append(cluster)
    return values, clusters


def _pooled(members: Sequence[tuple[Stratum, str]]) -> float | None:
    values, _ = _known_values(members)
    return sum(values) / len(values) if values else None
