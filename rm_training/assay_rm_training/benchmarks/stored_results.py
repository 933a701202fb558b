"""Benchmark results in the store and on disk: writing, leaderboards, one result with its parts, best-of-n curves.

Covers: the newest result of each model under the same protocol on the same items, all of one result, its items by
subset. Leaves out: the protocols.

Per-item results on disk and in the workspace's store (migration 0010). A Parquet file of results is also a file of
recorded scores: `assay eval --bench ... --scores items.parquet` reads it back. Leaves out: the run record
(`assay_rm_training.runs.benchmark`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assay.errors import NotFoundError
from assay.runs.coverage import Coverage
from assay.runs.record import Run
from assay.statistics.intervals import LEAST_CLUSTERS, wilson
from assay.store.database import Connection, registered
from assay.system.atomic_files import replacing
from assay_rm_training.benchmarks.benchmark import Benchmark, CurvePoint, ScoredItems, TiePolicy, cluster_of
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.report import BenchmarkReport
from assay_rm_training.benchmarks.strata import NamedInterval, mean_interval

if TYPE_CHECKING:
    import pyarrow as pa

#: Headline aggregates of benchmarks without `overall`, in order of preference.
HEADLINES = ("overall", "preference/accuracy", "correctness/pair_accuracy", "pooled")


@dataclass(frozen=True)
class StoredResult:
    """One model's result in one run. `version`: None for recorded scores. `data`: identity of the files and of how many
    items were read; None where unknown. `missing`: parts without a scored item; None: not known.
    `truncated_share`: None where the scores do not say. `failed_as_wrong`: aggregates with failed items as wrong.
    `read_as`: the precision and the length that the model was run with; empty for recorded scores."""

    run_id: str
    bench: str
    model: str
    version: str | None
    at: datetime
    aggregates: Mapping[str, float | None]
    intervals: Mapping[str, NamedInterval]
    counts: Mapping[str, int]
    protocol: Mapping[str, str]
    data: str | None = None
    missing: Sequence[str] | None = None
    truncated_share: float | None = None
    failures: Mapping[str, int] = field(default_factory=dict)
    failed_as_wrong: Mapping[str, float | None] = field(default_factory=dict)
    read_as: str = ""
    curves: Mapping[str, Sequence[CurvePoint]] = field(default_factory=dict)

    @property
    def ties(self) -> str:
        return self.protocol.get("tie_policy", "official")

    @property
    def coverage(self) -> Coverage:
        return Coverage(
            self.counts.get("items", 0),
            self.counts.get("scored", 0),
            "items",
            self.failures,
            self.counts.get("truncated") if self.truncated_share is not None else None,
        )

    @property
    def headline(self) -> str | None:
        """The headline aggregate; None where nothing has a value."""
        present = [name for name, value in self.aggregates.items() if value is not None]
        return next((name for name in HEADLINES if name in present), present[0] if present else None)


class ItemCredit(NamedTuple):
    """One item of a result. `prompt`: hash of its prompt. `credit`: 0 to 1; None also for a failed one."""

    part: str
    subset: str
    prompt: str
    credit: float | None
    failed: bool
    truncated: bool


@dataclass(frozen=True)
class SubsetShare:
    """Mean credit of a subset's items with its 95 % interval; None where nothing there is right or wrong."""

    part: str
    subset: str
    items: int
    failed: int
    truncated: int
    credit: float | None
    interval: NamedInterval | None


_RESULTS = """
    SELECT b.run_id, b.bench, b.model, b.model_version, epoch(b.created_at), b.aggregates, b.intervals, b.counts,
           b.protocol,
           CASE WHEN json_exists(r.metrics, '$.models')
                THEN list_extract(list_filter(json_extract(r.metrics, '$.models[*]'),
                                              lambda m: json_extract_string(m, '$.model') = b.model), 1)
                ELSE r.metrics END
    FROM benchmark_results b LEFT JOIN runs r USING (run_id)"""


def newest_results(db: Connection) -> list[StoredResult]:
    """Of each benchmark, model, version, precision and length, tie policy and items the newest result, newest first."""
    newest: dict[tuple[Any, ...], StoredResult] = {}
    for row in db.execute(f"{_RESULTS} ORDER BY b.created_at DESC, b.run_id, b.model").fetchall():
        one = _result(*row)
        identity = (one.bench, one.model, one.version, one.read_as, one.ties, one.data, one.counts.get("items"))
        newest.setdefault(identity, one)
    return list(newest.values())


def stored_result(db: Connection, run_id: str, bench: str, model: str) -> StoredResult:
    """Raises NotFoundError."""
    row = db.execute(
        f"{_RESULTS} WHERE b.run_id = ? AND b.bench = ? AND b.model = ?", [run_id, bench, model]
    ).fetchone()
    if row is None:
        raise NotFoundError(f"{run_id} has no result of {model!r} on {bench}")
    return _result(*row)


def item_credits(db: Connection, run_id: str, bench: str, model: str) -> list[ItemCredit]:
    """Every item of one result, for `subset_shares`."""
    rows = db.execute(
        """SELECT part, subset, prompt_hash, credit, failure IS NOT NULL, truncated FROM benchmark_items
           WHERE run_id = ? AND bench = ? AND model = ? ORDER BY part, subset, key""",
        [run_id, bench, model],
    ).fetchall()
    return [ItemCredit(*row) for row in rows]


def subset_shares(items: Sequence[ItemCredit], *, seed: int = 0) -> list[SubsetShare]:
    """Shares by part and subset. Wilson's interval for items right or wrong with a prompt each, else the bootstrap over
    prompts; none where that has no spread."""
    groups: dict[tuple[str, str], list[ItemCredit]] = {}
    for item in items:
        groups.setdefault((item.part, item.subset), []).append(item)
    shares = []
    for (part, subset), members in groups.items():
        credits = [item.credit for item in members if item.credit is not None]
        prompts = [item.prompt for item in members if item.credit is not None]
        shares.append(
            SubsetShare(
                part,
                subset,
                len(members),
                sum(item.failed for item in members),
                sum(item.truncated for item in members),
                float(np.mean(credits)) if credits else None,
                _share_interval(credits, prompts) if credits else None,
            )
        )
    return shares


def _share_interval(credits: Sequence[float], prompts: Sequence[str]) -> NamedInterval | None:
    if len(credits) >= LEAST_CLUSTERS and len(set(prompts)) == len(prompts) and set(credits) <= {0.0, 1.0}:
        plain = wilson(sum(credits), len(credits))
        return NamedInterval(plain.low, plain.high, "wilson")
    return mean_interval(credits, prompts)


def _result(
    run_id: str,
    bench: str,
    model: str,
    version: str | None,
    at: float,
    aggregates: str,
    intervals: str,
    counts: str,
    protocol: str,
    metrics: str | None,
) -> StoredResult:
    payload: dict[str, Any] = json.loads(metrics) if metrics else {}
    read = [(source.get("sha256"), source.get("rows")) for source in payload.get("data") or ()]
    limit = payload.get("limit")
    info = payload.get("model_info") or {}
    return StoredResult(
        run_id,
        bench,
        model,
        version,
        datetime.fromtimestamp(at, UTC),
        json.loads(aggregates),
        {name: NamedInterval(**interval) for name, interval in json.loads(intervals).items()},
        json.loads(counts),
        json.loads(protocol),
        data=sha256(json.dumps([read, limit]).encode()).hexdigest()[:8] if read else None,
        missing=payload.get("missing"),
        truncated_share=share if (share := payload.get("truncated_share")) is not None and share <= 1 else None,
        read_as=f"{info['dtype']}, {info['max_length']} tokens" if info.get("dtype") else "",
        failures=payload.get("failures") or {},
        failed_as_wrong=payload.get("aggregates_failures_wrong") or {},
        curves={name: [_point(**point) for point in points] for name, points in (payload.get("curves") or {}).items()},
    )


def _point(n: int, gold: float, kl: float, items: int, interval: Mapping[str, Any] | None = None) -> CurvePoint:
    return CurvePoint(n, gold, kl, items, NamedInterval(**interval) if interval else None)


COLUMNS = (
    "bench",
    "model",
    "key",
    "id",
    "part",
    "subset",
    "prompt_hash",
    "scores",
    "decisions",
    "gold",
    "credit",
    "truncated",
    "failure",
)


def item_table(
    benchmark: Benchmark, model: str, items: Sequence[BenchmarkItem], outcomes: Sequence[Outcome], ties: TiePolicy
) -> "pa.Table":
    """One row per item, columns `COLUMNS`; a failed item has a failure and neither scores nor credit."""
    import pyarrow as pa

    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = {"scores": numbers, "gold": numbers, "decisions": texts, "credit": pa.float64(), "truncated": pa.bool_()}
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    benchmark = benchmark.fitted(ScoredItems(items, outcomes, ties))
    for item, outcome in zip(items, outcomes, strict=True):
        credit = benchmark.credit(item, outcome, ties) if outcome.failure is None else None
        values = (
            benchmark.name,
            model,
            item.key,
            item.id,
            item.part,
            item.subset,
            cluster_of(item),
            outcome.scores,
            outcome.decisions,
            item.gold,
            None if credit is None or math.isnan(credit) else credit,
            outcome.truncated,
            outcome.failure,
        )
        for name, value in zip(COLUMNS, values, strict=True):
            rows[name].append(value)
    return pa.table({name: pa.array(rows[name], type=types.get(name, pa.string())) for name in COLUMNS})


def write_parquet(path: Path, table: "pa.Table") -> None:
    """Write atomically."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def store_results(run: Run, report: BenchmarkReport, table: "pa.Table", *, version: str | None) -> None:
    """Aggregates and items of one model, in one unit of work."""
    payload = report.to_dict()
    with run.workspace.store.unit() as db:
        db.execute(
            """INSERT INTO benchmark_results
               (run_id, bench, model, model_version, aggregates, intervals, counts, protocol)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            [
                run.id,
                report.bench,
                report.model,
                version,
                *(json.dumps(payload[name]) for name in ("aggregates", "intervals", "counts", "protocol")),
            ],
        )
        with registered(db, "incoming_items", table):
            columns = ", ".join(COLUMNS)
            db.execute(
                f"INSERT INTO benchmark_items (run_id, {columns}) SELECT ?, {columns} FROM incoming_items", [run.id]
            )
