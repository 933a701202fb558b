"""Live curves of runs: replies with the new points of metrics readers, which are kept between requests."""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.runs.process import process_of
from assay_web.run_charts import CurveChart, policy_charts, training_charts
from assay_web.run_charts.policy import WATCH
from assay_web.runs.buckets import Array, Points
from assay_web.runs.key_figure import POLICY_FIGURES, STEP_FIGURES, figures_of
from assay_web.runs.loop_events import loop_moments
from assay_web.runs.metrics_reader import SECONDS, TOKENS, MetricsReader
from assay_web.runs.replies import CurvesReply, KeyFigure, Moment, PointsReply

READ_S = 0.3  #: time limit of reading per request; later requests continue
_PLANS = ("plan.json", "run.json")


def curves_reply(reader: MetricsReader, folder: Path, since: str | None) -> CurvesReply:
    """`since`: `state` of the previous reply; its points are omitted."""
    process = process_of(folder)
    running = process is not None and process.status == "running" and not process.is_gone()
    with reader.lock:
        reader.read(READ_S)
        measured = reader.measured
        charts = policy_charts(measured) if reader.policy else training_charts(measured)
        keys = _keys(charts)
        mark = f"{reader.generation}-{zlib.crc32(repr(sorted(keys.items())).encode()):08x}"
        previous = _parse_state(since, mark)
        points = [
            buckets.points(keys[source], known_rows=rows, known_width=width)
            for (source, buckets), (width, rows) in zip(
                (("step", reader.step), ("evaluation", reader.evaluation)), previous or ((0, 0), (0, 0)), strict=True
            )
        ]
        places = [f"{b.width}.{b.rows}" for b in (reader.step, reader.evaluation)]
        return CurvesReply(
            state=".".join([mark, *places]),
            anew=previous is None,
            behind=reader.behind,
            read=reader.position / reader.size if reader.size else 1.0,
            running=running,
            rows=reader.step.rows + reader.evaluation.rows,
            broken=reader.broken,
            progress=_progress(folder, reader.last["step"]),
            charts=charts,
            step=_points(points[0]),
            evaluation=_points(points[1]),
            latest=_latest(reader),
            moments=[*_moments(reader), *loop_moments(folder)],
        )


def newest_metrics(reader: MetricsReader) -> Mapping[str, Any]:
    """The newest step's row; empty before the first one."""
    with reader.lock:
        reader.read(READ_S)
        return reader.last["step"]


def _keys(charts: list[CurveChart]) -> dict[str, list[str]]:
    """Metric keys that the charts draw, and what they can be drawn over, by source."""
    keys: dict[str, dict[str, None]] = {"step": {}, "evaluation": {}}
    for chart in charts:
        for curve in (*chart.curves, *((chart.reference,) if chart.reference else ())):
            keys[curve.of] |= dict.fromkeys(curve.keys)
            if chart.x != "step":
                keys[curve.of][chart.x] = None
    return {source: [*names, TOKENS, SECONDS] for source, names in keys.items()}


def _parse_state(since: str | None, mark: str) -> list[tuple[int, int]] | None:
    """Width and rows of steps and of evaluations that the client has; None if they are not valid for this file."""
    state, *numbers = (since or "").split(".")
    if state != mark or len(numbers) != 4 or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    first, second, third, fourth = map(int, numbers)
    return [(first, second), (third, fourth)]


def _latest(reader: MetricsReader) -> list[KeyFigure]:
    row, evaluation = reader.last["step"], reader.last["evaluation"]
    if not row:
        return []
    figures = [KeyFigure(label="step", value=row["step"])]
    figures += figures_of(row, POLICY_FIGURES if reader.policy else STEP_FIGURES)
    held = (("accuracy", "held-out accuracy", True), ("nll" if "nll" in evaluation else "loss", "held-out loss", False))
    return figures + figures_of(evaluation, held)


def _moments(reader: MetricsReader) -> list[Moment]:
    step = reader.overoptimised_from
    return [] if step is None else [Moment(step=step, text="the watch speaks up", section=WATCH)]


def _progress(folder: Path, row: Any) -> float | None:
    """Share of the steps or epochs in the run's plan."""
    for name in _PLANS:
        try:
            plan = json.loads((folder / name).read_text(encoding="utf-8"))
            if "recipe" in plan:
                return min(1.0, float(row["step"] / plan["recipe"]["steps"]))
            return min(1.0, float(row["epoch"] / plan["config"]["epochs"]))
        except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
            continue
    return None


def _points(points: Points) -> PointsReply:
    return PointsReply(
        first=points.first,
        width=points.width,
        step=points.step.tolist(),
        mean={key: _numbers(values) for key, values in points.mean.items()},
        low={key: _numbers(values) for key, values in points.low.items()},
        high={key: _numbers(values) for key, values in points.high.items()},
    )


def _numbers(values: Array) -> list[float | None]:
    """Six significant digits, enough for a chart."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values.tolist()]
