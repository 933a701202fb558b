"""Reading calibrations from the store: reliability measured by runs, scores that carry calibrated probabilities.

Covers: runs of `assay calibrate` and of `assay eval --data`, before and after; each calibration with how many stored
scores carry its probability. Leaves out: measuring (`measures.py`), writing (`assay.runs.calibrations`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.models.calibration import Calibration
from assay.statistics.intervals import Interval, wilson
from assay.store.database import Connection
from assay.store.scored_models import MODEL_VERSION
from assay_rm_training.calibration.measures import MEASURES, UNBIASED, Bin


@dataclass(frozen=True)
class MeasuredBin:
    """A bin of a reliability diagram; `interval`: Wilson's of the observed share, its pairs taken as independent."""

    bin: Bin
    interval: Interval


@dataclass(frozen=True)
class MeasuredReliability:
    """One side of a measurement: bins and figures, and 95 % intervals of those that have one, None if undetermined."""

    bins: Sequence[MeasuredBin]
    figures: Mapping[str, float]
    intervals: Mapping[str, Interval | None]


@dataclass(frozen=True)
class ReliabilityRun:
    """What a run measured on the pairs `data`. `before`: rewards read as log-odds. `after`: the calibrated
    probabilities, of folds left out of a fit where the run fitted (`calibration`: what it fitted); None without one."""

    run_id: str
    kind: str
    at: datetime
    model: str
    version: str
    data: str
    pairs: int
    trained_on: bool
    before: MeasuredReliability
    after: MeasuredReliability | None
    calibration: Calibration | None
    nll_by_method: Mapping[str, float]
    notes: Sequence[str]


@dataclass(frozen=True)
class StoredCalibration:
    """`scores`: stored ones with its probability. `newest`: whether it is its version's last."""

    calibration: Calibration
    version: str
    at: datetime
    run_id: str | None
    model: str | None
    scores: int
    newest: bool


def reliability_runs(db: Connection, *, most: int = 100) -> list[ReliabilityRun]:
    """The newest first. Runs that measured no reliability of pairs (benchmarks, judged responses) are left out."""
    rows = db.execute(
        """SELECT run_id, kind, epoch(started_at), config, metrics FROM runs
           WHERE status = 'done' AND ((kind = 'calibrate' AND json_exists(metrics, '$.before.bins'))
                                      OR (kind = 'eval' AND json_exists(metrics, '$.calibration.bins')))
           ORDER BY started_at DESC LIMIT ?""",
        [most],
    ).fetchall()
    return [
        _run(run_id, kind, at, json.loads(config), json.loads(metrics)) for run_id, kind, at, config, metrics in rows
    ]


def stored_calibrations(db: Connection) -> list[StoredCalibration]:
    """The newest first."""
    rows = db.execute(
        f"""WITH counted AS (
               SELECT model_version AS stored, calibration, any_value(model) AS model, count(*) AS n
               FROM scores GROUP BY ALL),
           scored AS (SELECT * REPLACE ({MODEL_VERSION.format(stored="stored")} AS stored) FROM counted)
           SELECT c.parameters, c.model_version, epoch(c.created_at), c.run_id,
                  coalesce((SELECT any_value(s.model) FROM scored s WHERE s.stored = c.model_version),
                           r.config ->> '$.model'),
                  (SELECT coalesce(sum(s.n), 0)::BIGINT FROM scored s
                   WHERE s.stored = c.model_version AND s.calibration = c.calibration_id),
                  c.created_at = max(c.created_at) OVER (PARTITION BY c.model_version)
           FROM calibrations c LEFT JOIN runs r USING (run_id) ORDER BY c.created_at DESC, c.calibration_id"""
    ).fetchall()
    return [
        StoredCalibration(
            Calibration.from_dict(json.loads(parameters)),
            version,
            datetime.fromtimestamp(at, UTC),
            run_id,
            model,
            scores,
            newest,
        )
        for parameters, version, at, run_id, model, scores, newest in rows
    ]


def newest_calibrations(db: Connection) -> dict[str, Calibration]:
    """Model version -> the last calibration fitted for it."""
    rows = db.execute(
        "SELECT model_version, arg_max(parameters, created_at) FROM calibrations GROUP BY model_version"
    ).fetchall()
    return {version: Calibration.from_dict(json.loads(parameters)) for version, parameters in rows}


def _run(run_id: str, kind: str, at: float, config: Mapping[str, Any], metrics: Mapping[str, Any]) -> ReliabilityRun:
    if kind == "calibrate":
        before, after, fitted = metrics["before"], metrics["after"], metrics["calibration"]
        model, version, pairs = metrics["model"], metrics["version"], metrics["pairs"]
    else:
        before, after, fitted = metrics["calibration"], metrics.get("calibrated"), metrics.get("fitted")
        info = metrics.get("model") or {}
        model, version, pairs = info.get("name", config["model"]), info.get("version", ""), metrics["scored"]
    return ReliabilityRun(
        run_id,
        kind,
        datetime.fromtimestamp(at, UTC),
        model,
        version,
        config["data"],
        pairs,
        bool(metrics.get("trained_on")),
        _side(before),
        _side(after) if after else None,
        Calibration.from_dict(fitted) if fitted else None,
        metrics.get("nll_by_method") or {},
        tuple(metrics.get("notes") or ()),
    )


def _side(measured: Mapping[str, Any]) -> MeasuredReliability:
    bins, intervals = [Bin(**one) for one in measured["bins"]], measured.get("intervals") or {}
    return MeasuredReliability(
        [MeasuredBin(b, wilson(b.observed * b.pairs, b.pairs)) for b in bins],
        {name: measured[name] for name in MEASURES if measured.get(name) is not None},
        {name: Interval(**one) if (one := intervals[name]) else None for name in UNBIASED if name in intervals},
    )
