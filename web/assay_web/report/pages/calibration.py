"""The page of one calibration: reliability before and after on left-out folds, the figures, the methods compared.

Leaves out: what is measured (`assay_rm_training.calibration`), curves of trainings (`runs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_rm_training.calibration.measures import MEASURES, UNBIASED, measure_text
from assay_web.report.content import BarChart, DiagramBin, Reliability, Section, Series, Table


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
