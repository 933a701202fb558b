"""Routes of the leaderboards: stored benchmark results, and one result in full."""

from datetime import datetime

from fastapi import APIRouter
from pydantic import AliasPath, BaseModel, Field

from assay_rm_training.benchmarks.catalogue import BENCHMARKS, benchmark
from assay_rm_training.benchmarks.stored_results import (
    StoredResult,
    item_credits,
    newest_results,
    stored_result,
    subset_shares,
)
from assay_web.access.guard import Viewer
from assay_web.rewards.interval import WithInterval
from assay_web.service import ServiceNow

router = APIRouter(tags=["rewards"])

METHOD = Field(None, validation_alias=AliasPath("interval", "method"))


class Aggregate(WithInterval):
    """One figure of a result; `low`, `high`: its 95 % interval by `method`, null where it has none."""

    name: str
    value: float | None
    method: str | None = METHOD


class BenchmarkEntry(BaseModel):
    """One model's newest result under a tie policy on a set of items. `version`: null for recorded scores. `data`:
    equal where the same files were read to the same length; null where the run does not say. `missing`: parts without a
    scored item; null where it is not known. `curves`: names of its best-of-n curves. `read_as`: precision and
    length that the model was run with. `coverage`: share of the
    items that was scored; below a bound the result is not `ranked`. `failures_wrong`: the headline with failed items as
    wrong, where any failed."""

    run_id: str
    model: str
    version: str | None
    at: datetime
    ties: str
    data: str | None
    headline: Aggregate | None
    items: int
    scored: int
    failed: int
    truncated: int
    missing: list[str] | None
    curves: list[str]
    read_as: str
    coverage: float
    ranked: bool
    warnings: list[str]
    failures_wrong: float | None


class BenchmarkBoard(BaseModel):
    """The entries of one benchmark: those that are ranked, then the others, each the newest first."""

    bench: str
    title: str
    entries: list[BenchmarkEntry]


class Leaderboards(BaseModel):
    """Every benchmark that something was evaluated on."""

    boards: list[BenchmarkBoard]


class BestOfPoint(WithInterval):
    """Expected gold of the best of `n` by the model, over `items` lists; `kl` of best-of-n from one, in nats."""

    n: int
    gold: float
    kl: float
    items: int


class BestOfCurve(BaseModel):
    """One best-of-n curve."""

    name: str
    points: list[BestOfPoint]


class SubsetCredit(WithInterval):
    """Mean credit of a subset's items, 0 to 1; null where nothing there is right or wrong."""

    part: str
    subset: str
    items: int
    failed: int
    truncated: int
    credit: float | None
    method: str | None = METHOD


class BenchmarkResult(BaseModel):
    """All of one result. `failures`: code and count. `protocol`: what was measured, in words."""

    entry: BenchmarkEntry
    bench: str
    aggregates: list[Aggregate]
    counts: dict[str, int]
    failures: dict[str, int]
    protocol: dict[str, str]
    truncated_share: float | None
    curves: list[BestOfCurve]
    subsets: list[SubsetCredit]


@router.get("/api/rewards/leaderboards")
def list_leaderboards(person: Viewer, service: ServiceNow) -> Leaderboards:
    """The newest result of every model on every benchmark."""
    with service.store() as db:
        results = newest_results(db)
    boards: dict[str, list[BenchmarkEntry]] = {}
    for one in results:
        boards.setdefault(one.bench, []).append(_entry(one))
    for entries in boards.values():
        entries.sort(key=lambda entry: not entry.ranked)
    order = [*BENCHMARKS.members, *sorted(boards.keys() - BENCHMARKS.members.keys())]
    return Leaderboards(
        boards=[
            BenchmarkBoard(
                bench=name, title=benchmark(name).title if name in BENCHMARKS.members else name, entries=boards[name]
            )
            for name in order
            if name in boards
        ]
    )


@router.get("/api/rewards/results/{run_id}")
def read_benchmark_result(person: Viewer, service: ServiceNow, run_id: str, bench: str, model: str) -> BenchmarkResult:
    """Every aggregate, curve and subset of one model's result in one run."""
    with service.store() as db:
        stored = stored_result(db, run_id, bench, model)
        items = item_credits(db, run_id, bench, model)
    return BenchmarkResult(
        entry=_entry(stored),
        bench=bench,
        aggregates=[_aggregate(stored, name) for name in stored.aggregates],
        counts=dict(stored.counts),
        failures=dict(stored.failures),
        protocol=dict(stored.protocol),
        truncated_share=stored.truncated_share,
        curves=[
            BestOfCurve(name=name, points=[BestOfPoint.model_validate(point) for point in points])
            for name, points in stored.curves.items()
        ],
        subsets=[SubsetCredit.model_validate(share) for share in subset_shares(items)],
    )


def _entry(one: StoredResult) -> BenchmarkEntry:
    counts = one.counts
    return BenchmarkEntry(
        run_id=one.run_id,
        model=one.model,
        version=one.version,
        at=one.at,
        ties=one.ties,
        data=one.data,
        headline=_aggregate(one, one.headline) if one.headline is not None else None,
        items=counts.get("items", 0),
        scored=counts.get("scored", 0),
        failed=counts.get("failed", 0),
        truncated=counts.get("truncated", 0),
        missing=list(one.missing) if one.missing is not None else None,
        curves=list(one.curves),
        read_as=one.read_as,
        coverage=one.coverage.share,
        ranked=one.coverage.ranked,
        warnings=one.coverage.of_evaluation(),
        failures_wrong=one.failed_as_wrong.get(one.headline) if one.headline is not None else None,
    )


def _aggregate(one: StoredResult, name: str) -> Aggregate:
    return Aggregate.of(name=name, value=one.aggregates[name], interval=one.intervals.get(name))
