"""The charts of a reward-model training, slices of what is held out among them."""

from collections.abc import Mapping, Sequence

from assay_web.run_charts.chart import CurveChart, MetricCurve, MetricExtents, Row, charts_of

CURVES_SHOWN = 8  #: slices of a division that get a curve
#: Divisions of the held-out data, with labels.
DIVISIONS = {
    "source": "source",
    "category": "category",
    "length": "length of the longer response, in characters",
    "longer": "which response is longer",
    "margin": "margin of the label",
}
_SLICE = "slice"


def training_charts(measured: MetricExtents) -> list[CurveChart]:
    """The charts that have data."""
    charts = charts_of("training", measured)
    learning = [chart for chart in charts if chart.section == "Curves"]
    return [*learning, *slice_charts(_parts(measured)), *charts[len(learning) :]]


def slice_charts(parts: Mapping[str, Sequence[str]]) -> list[CurveChart]:
    """One chart per division: the accuracy of its slices. `parts`: division -> names. Rows need `with_slices`."""
    return [
        CurveChart(
            "Held out",
            f"Accuracy by {title}, over the run",
            tuple(MetricCurve(name, _slice_key(by, name), "evaluation") for name in parts[by][:CURVES_SHOWN]),
            share=True,
        )
        for by, title in DIVISIONS.items()
        if parts.get(by)
    ]


def with_slices(row: Row) -> Row:
    """An evaluation's row with the accuracy of each slice under a key of its own."""
    return {**row, **{_slice_key(part["by"], part["name"]): part["accuracy"] for part in row.get("slices", ())}}


def _slice_key(by: str, name: str) -> str:
    return f"{_SLICE}:{by}:{name}"


def _parts(measured: MetricExtents) -> dict[str, list[str]]:
    """Names of slices with more than one evaluation, by division."""
    parts: dict[str, list[str]] = {}
    for key, extent in measured.evaluation.items():
        mark, _, label = key.partition(":")
        by, _, name = label.partition(":")
        if mark == _SLICE and extent.rows > 1:
            parts.setdefault(by, []).append(name)
    return parts
