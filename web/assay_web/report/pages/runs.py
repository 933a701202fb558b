"""The page of one run: its curves from `metrics.jsonl`, its final figures, its configuration.

Covers: reward-model training (`training`) and policy training (`policy`), finished or running; calibrations, with
reliability before and after on left-out folds and the methods compared.
Leaves out: what a calibration measures (`assay_rm_training.calibration`), the demo's report (`demo.pages`), comparing
runs.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.data.json_lines import Lines, parse_object
from assay.errors import BadInputError, NotFoundError
from assay.runs.coverage import warnings_of
from assay.runs.record import mark_dead_runs
from assay.workspace import Workspace
from assay_rm_training.calibration.measures import MEASURES, UNBIASED, measure_text
from assay_web.report.content import BarChart, Block, Commands, DiagramBin, Reliability, Report, Section, Series, Table
from assay_web.report.pages.policy import policy_sections
from assay_web.report.pages.training import training_sections
from assay_web.report.render import write


def calibration_sections(metrics: Mapping[str, Any]) -> list[Section]:
    """Sections of the report, from the metrics of a run of kind `calibrate`; empty for a run that has not ended."""
    if "before" not in metrics:
        return []
    fitted = metrics["calibration"]
    numbers = f"T {fitted['temperature']:.4g}"
    if fitted["method"] == "platt":
        numbers += f", offset {fitted['offset']:.4g}"
    elif fitted["method"] == "isotonic":
        numbers = f"{len(fitted['knots'])} knots"
    diagrams = [
        Reliability(title, [DiagramBin(b["predicted"], b["observed"], b["pairs"]) for b in metrics[when]["bins"]])
        for when, title in (("before", "Before: rewards as log-odds"), ("after", "After, on folds left out of the fit"))
    ]
    shown = {name: label for name, label in MEASURES.items() if metrics["before"].get(name) is not None}
    bounds = {when: {n: metrics[when]["intervals"].get(n) or {} for n in UNBIASED} for when in ("before", "after")}
    bars = BarChart(
        "On left-out folds, 95 % by prompt of what has an interval",
        list(shown.values()),
        [
            Series(
                when,
                [metrics[when].get(name) for name in shown],
                low=[bounds[when].get(name, {}).get("low") for name in shown],
                high=[bounds[when].get(name, {}).get("high") for name in shown],
            )
            for when in ("before", "after")
        ],
    )
    figures = Table(
        ("figure", "before (95 %)", "after (95 %)"),
        [
            (label, *(measure_text(metrics[when], name) for when in ("before", "after")))
            for name, label in shown.items()
        ],
    )
    methods = Table(("method", "NLL on left-out folds"), list(metrics["nll_by_method"].items()))
    intro = (
        f"{fitted['method']} ({numbers}) by {metrics['chosen_by']}, on {fitted['pairs']} pairs of "
        f"{fitted['fitted_on']}; calibration {metrics['id']} of model version {metrics['version']}."
    )
    return [Section("Reliability", diagrams, intro), Section("Figures", [bars, figures, methods])]


METRICS, ROLLOUTS = "metrics.jsonl", "rollouts.jsonl"
Rows = Sequence[Mapping[str, Any]]

#: Kinds of runs that have a page with curves.
KINDS = ("train", "rl")


def write_run_page(workspace: Workspace, run_id: str, target: Path | None = None) -> Path:
    """Write the page of a run and return its path (default: in the workspace's reports).

    Raises NotFoundError for an unknown run, BadInputError for one that has no curves.
    """
    mark_dead_runs(workspace)
    with workspace.store.unit() as db:
        row = db.execute(
            "SELECT kind, status, config, metrics, error, code_version, started_at::VARCHAR FROM runs WHERE run_id = ?",
            [run_id],
        ).fetchone()
    if row is None:
        raise NotFoundError(f"no run {run_id!r} in {workspace.root}")
    kind, status, config, metrics, error, code, started = row
    path = workspace.runs / run_id / METRICS
    figures = json.loads(metrics) if metrics else {}
    sections = calibration_sections(figures) if kind == "calibrate" else []
    if not sections:
        if kind not in KINDS or not path.is_file():
            raise BadInputError(
                f"{run_id} is a run of kind {kind} without curves; those of {', '.join(KINDS)} have them"
            )
        rows = [parse_object(line) for _, line in Lines(path)]
        if kind == "train" and not is_policy(rows):
            sections = training_sections(rows, json.loads(config))
        else:
            rollouts = path.with_name(ROLLOUTS)
            logged = (parse_object(line) for _, line in Lines(rollouts)) if rollouts.is_file() else iter(())
            sections = policy_sections(rows, logged)
        sections.append(Section("Figures", _figures(figures)))
    if warnings := warnings_of(figures):
        sections.insert(0, Section("Warnings", [Table(("warning",), [(warning,) for warning in warnings])]))
    subtitle = f"{kind}, {status}, started {started[:19]} UTC, assay {code}" + (f": {error}" if error else "")
    model_name = json.loads(config).get("name") or json.loads(config).get("model")
    report = Report(
        title=f"{Path(str(model_name)).name}: {run_id}" if model_name else run_id,
        subtitle=subtitle,
        sections=[
            *sections,
            Section("Configuration", [_settings(json.loads(config)), Commands([f"assay lineage {run_id}"])]),
        ],
    )
    page = target or workspace.reports / f"{run_id}.html"
    write(report, page)
    return page


def is_policy(rows: Rows) -> bool:
    """Whether the rows are of a policy training, which a generative judge's training is too."""
    return bool(rows) and "rollouts" in rows[0]


def _figures(metrics: Mapping[str, Any]) -> list[Block]:
    """Numbers and short texts of the run's record; what is nested is flattened by dots."""
    rows = [(name, value) for name, value in flattened(metrics) if isinstance(value, str | int | float)]
    return [Table(("figure", "value"), rows, note="" if rows else "Nothing yet: the run has not ended.")]


def _settings(config: Mapping[str, Any]) -> Table:
    return Table(
        ("setting", "value"), [(name, "" if value is None else str(value)) for name, value in flattened(config)]
    )


def flattened(payload: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested values with dotted names: {"a": {"b": 1}} is ("a.b", 1)."""
    flat: list[tuple[str, Any]] = []
    for name, value in payload.items():
        if isinstance(value, Mapping):
            flat += flattened(value, f"{prefix}{name}.")
        else:
            flat.append((f"{prefix}{name}", value))
    return flat
