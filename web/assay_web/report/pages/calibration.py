"""The page of one calibration: reliability before and after on left-out folds, the figures, the methods compared.

Leaves out: what is measured (`assay_rm_training.calibration`), curves of trainings (`runs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_web.report.content import BarChart, DiagramBin, Reliability, Section, Series, Table

_FIGURES = {
    "ece": "calibration error, 10 equal bins",
    "ece_equal_mass": "calibration error, 10 bins of equal count",
    "brier": "Brier score",
    "nll": "negative log-likelihood",
}


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
    bounds = {when: metrics[when]["intervals"] for when in ("before", "after")}
    bars = BarChart(
        "On left-out folds, 95 % by bootstrap over prompts",
        list(_FIGURES.values()),
        [
            Series(
                when,
                [metrics[when][name] for name in _FIGURES],
                low=[bounds[when].get(name, {}).get("low") for name in _FIGURES],
                high=[bounds[when].get(name, {}).get("high") for name in _FIGURES],
            )
            for when in ("before", "after")
        ],
    )
    methods = Table(("method", "NLL on left-out folds"), list(metrics["nll_by_method"].items()))
    intro = (
        f"{fitted['method']} ({numbers}) by {metrics['chosen_by']}, on {fitted['pairs']} pairs of "
        f"{fitted['fitted_on']}; calibration {metrics['id']} of model version {metrics['version']}."
    )
    return [Section("Reliability", diagrams, intro), Section("Figures", [bars, methods])]
