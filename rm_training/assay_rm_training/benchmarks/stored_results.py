"""Reading benchmark results from the store: leaderboards, one result with its parts, best-of-n curves.

Covers: the newest result of each model under the same protocol on the same items, all of one result, its items by
subset. Leaves out: writing (`results_store.py`), the protocols.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from assay.errors import NotFoundError
from assay.runs.coverage import Coverage
from assay.statistics.intervals import LEAST_CLUSTERS, wilson
from assay.store.database import Connection
from assay_rm_training.benchmarks.benchmark import CurvePoint
from assay_rm_training.benchmarks.strata import NamedInterval, mean_interval

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
