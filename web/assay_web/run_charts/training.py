"""The charts of a reward-model training: learning, slices of what is held out, optimiser, speed and memory."""

from collections.abc import Iterator, Mapping, Sequence

from assay_web.run_charts.chart import CurveChart, MetricCurve, MetricExtents, Row, with_available_curves

RECENT = 20  #: steps in the moving share of clipped steps
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
_GIB = 2.0**-30


def training_charts(measured: MetricExtents) -> list[CurveChart]:
    """The charts that have data."""
    charts = [*_learning(measured), *slice_charts(_parts(measured)), *_optimiser(measured), *_speed(measured)]
    return [available for chart in charts if (available := with_available_curves(chart, measured)) is not None]


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


def _learning(measured: MetricExtents) -> Iterator[CurveChart]:
    extents = measured.evaluation
    held = "nll" if "nll" in extents else "loss"
    notes = []
    if "accuracy_low" in extents and extents["accuracy_low"].rows > 1:
        notes.append("The band is the 95 % interval (Wilson).")
    if "length_baseline" in extents:
        notes.append("The line across: choosing the longer response (characters).")
    yield CurveChart(
        "Curves", "Loss", (MetricCurve("training", "loss"), MetricCurve("held-out", held, "evaluation")), "nats"
    )
    yield CurveChart(
        "Curves",
        "Accuracy",
        (
            MetricCurve("training batch", "accuracy"),
            MetricCurve("held-out", "accuracy", "evaluation", low="accuracy_low", high="accuracy_high"),
        ),
        share=True,
        note=" ".join(notes),
        reference=MetricCurve("choosing the longer", "length_baseline", "evaluation"),
    )
    margins = (MetricCurve("training batch", "margin"), MetricCurve("held-out", "margin", "evaluation"))
    yield CurveChart("Curves", "Margin, chosen - rejected", margins, "reward")
    if "chosen_std" in measured.step:
        sides = tuple(MetricCurve(side, f"{side}_mean", spread=f"{side}_std") for side in ("chosen", "rejected"))
        yield CurveChart("Curves", "Rewards", sides, "reward", note="Mean of the batch; the band is a deviation.")
    if "ece" in extents:
        errors = {"expected calibration error": "ece", "Brier score": "brier"}
        curves = tuple(MetricCurve(name, key, "evaluation") for name, key in errors.items())
        yield CurveChart("Curves", "Calibration, held-out", curves)


def _optimiser(measured: MetricExtents) -> Iterator[CurveChart]:
    yield CurveChart("Optimiser", "Learning rate", (MetricCurve("backbone", "lr"),))
    yield CurveChart("Optimiser", "Gradient norm", (MetricCurve("before clipping", "grad_norm"),))
    clipped, items = measured.step.get("clipped"), measured.step.get("items")
    if clipped is not None and clipped.high > 0:
        recent = MetricCurve(f"of the last {RECENT} steps", "clipped", window=RECENT)
        yield CurveChart("Optimiser", "Clipped", (recent,), share=True)
    if items is not None and items.low < items.high:
        yield CurveChart("Optimiser", "Batch size", (MetricCurve("items", "items"),))
    yield CurveChart("Optimiser", "How far a step moves the weights", (MetricCurve("norm", "update_norm"),))


def _speed(measured: MetricExtents) -> Iterator[CurveChart]:
    section = "Speed and memory"
    yield CurveChart(section, "Speed", (MetricCurve("tokens", "tokens_per_s"),), "tokens a second")
    yield CurveChart(section, "Items", (MetricCurve("items", "items_per_s"),), "items a second")
    parts = sorted(key for key in measured.step if key.startswith("seconds_"))
    yield CurveChart(
        section,
        "Where a step's time goes",
        tuple(MetricCurve(key.removeprefix("seconds_"), key) for key in parts),
        "seconds",
        note="By the host's clock; data: what the step waited for its items. On a GPU a part includes waiting for work "
        "that was started before it.",
    )
    shares = {"padding": "padded_share", "common beginnings, computed once": "shared_share"}
    yield CurveChart(section, "Saved and wasted", tuple(MetricCurve(n, k) for n, k in shares.items()), share=True)
    memory = {"resident": "peak_memory", "on the GPU": "peak_device_memory"}
    curves = tuple(MetricCurve(name, key, scale=_GIB) for name, key in memory.items())
    yield CurveChart(section, "Peak memory", curves, "GiB", note="Of the first process.")
