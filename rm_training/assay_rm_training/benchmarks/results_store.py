"""Per-item results on disk and in the workspace's store (migration 0010).

A Parquet file of results is also a file of recorded scores: `assay eval --bench ... --scores items.parquet` reads it
back. Leaves out: the run record (`assay_rm_training.runs.benchmark`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.runs.record import Run
from assay.store.database import registered
from assay.system.atomic_files import replacing
from assay_rm_training.benchmarks.benchmark import Benchmark, TiePolicy, cluster_of
from assay_rm_training.benchmarks.item import BenchmarkItem, Outcome
from assay_rm_training.benchmarks.report import BenchmarkReport

if TYPE_CHECKING:
    import pyarrow as pa

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
) -> pa.Table:
    """One row per item, columns `COLUMNS`; a failed item has a failure and neither scores nor credit."""
    import pyarrow as pa

    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    types = {"scores": numbers, "gold": numbers, "decisions": texts, "credit": pa.float64(), "truncated": pa.bool_()}
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
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


def write_parquet(path: Path, table: pa.Table) -> None:
    """Write atomically."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def store_results(run: Run, report: BenchmarkReport, table: pa.Table, *, version: str | None) -> None:
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
