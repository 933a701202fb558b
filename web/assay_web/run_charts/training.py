"""The charts of a reward-model training: learning, slices of what is held out, optimiser, speed and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from assay_web.run_charts.chart import Curve, CurveChart, Measured, Row, drawn

RECENT = 20  #: steps that the share of clipped ones is taken over
CURVES_SHOWN = 8  #: parts of a division that get a curve
#: How what is held out is divided, and the words for it.
DIVISIONS = {
    "source": "source",
    "category": "category",
    "length": "length of the longer response, in characters",
    "longer": "which response is longer",
    "margin": "margin of the label",
}
_SLICE = "slice"
_GIB = 2.0**-30


def training_charts(measured: Measured) -> list[CurveChart]:
    """Those that there are numbers for."""
    charts = [*_learning(measured), *slice_charts(_parts(measured)), *_optimiser(measured), *_speed(measured)]
    return [found for chart in charts if (found := drawn(chart, measured)) is not None]


def slice_charts(parts: Mapping[str, Sequence[str]]) -> list[CurveChart]:
    """One a division: the accuracy of its parts. `parts`: division -> names. Rows need `with_slices`."""
    return [
        CurveChart(
            "Held out",
            f"Accuracy by {title}, over the run",
            tuple(Curve(name, _slice_key(by, name), "evaluation") for name in parts[by][:CURVES_SHOWN]),
            share=True,
        )
        for by, title in DIVISIONS.items()
        if parts.get(by)
    ]


def with_slices(row: Row) -> Row:
    """An evaluation's row with the accuracy of each slice as a number of its own."""
    return {**row, **{_slice_key(part["by"], part["name"]): part["accuracy"] for part in row.get("slices", ())}}


def _slice_key(by: str, name: str) -> str:
    return f"{_SLICE}:{by}:{name}"


def _parts(measured: Measured) -> dict[str, list[str]]:
    """Names of the slices by division, where there was more than one evaluation to draw a curve through."""
    parts: dict[str, list[str]] = {}
    for key, extent in measured.evaluation.items():
        mark, _, rest = key.partition(":")
        by, _, name = rest.partition(":")
        if mark == _SLICE and extent.rows > 1:
            parts.setdefault(by, []).append(name)
    return parts


def _learning(measured: Measured) -> Iterator[CurveChart]:
    there = measured.evaluation
    held = "nll" if "nll" in there else "loss"
    notes = []
    if "accuracy_low" in there and there["accuracy_low"].rows > 1:
        notes.append("The band is the 95 % interval (Wilson).")
    if "length_baseline" in there:
        notes.append("The line across: choosing the longer response (characters).")
    yield CurveChart("Curves", "Loss", (Curve("training", "loss"), Curve("held-out", held, "evaluation")), "nats")
    yield CurveChart(
        "Curves",
        "Accuracy",
        (
            Curve("training batch", "accuracy"),
            Curve("held-out", "accuracy", "evaluation", low="accuracy_low", high="accuracy_high"),
        ),
        share=True,
        note=" ".join(notes),
        reference=Curve("choosing the longer", "length_baseline", "evaluation"),
    )
    margins = (Curve("training batch", "margin"), Curve("held-out", "margin", "evaluation"))
    yield CurveChart("Curves", "Margin, chosen - rejected", margins, "reward")
    if "chosen_std" in measured.step:
        sides = tuple(Curve(side, f"{side}_mean", spread=f"{side}_std") for side in ("chosen", "rejected"))
        yield CurveChart("Curves", "Rewards", sides, "reward", note="Mean of the batch; the band is a deviation.")
    if "ece" in there:
        errors = {"expected calibration error": "ece", "Brier score": "brier"}
        curves = tuple(Curve(name, key, "evaluation") for name, key in errors.items())
        yield CurveChart("Curves", "Calibration, held-out", curves)


def _optimiser(measured: Measured) -> Iterator[CurveChart]:
    yield CurveChart("Optimiser", "Learning rate", (Curve("backbone", "lr"),))
    yield CurveChart("Optimiser", "Gradient norm", (Curve("before clipping", "grad_norm"),))
    clipped, items = measured.step.get("clipped"), measured.step.get("items")
    if clipped is not None and clipped.high > 0:
        recent = Curve(f"of the last {RECENT} steps", "clipped", window=RECENT)
        yield CurveChart("Optimiser", "Clipped", (recent,), share=True)
    if items is not None and items.low < items.high:
        yield CurveChart("Optimiser", "Batch size", (Curve("items", "items"),))
    yield CurveChart("Optimiser", "How far a step moves the weights", (Curve("norm", "update_norm"),))


def _speed(measured: Measured) -> Iterator[CurveChart]:
    section = "Speed and memory"
    yield CurveChart(section, "Speed", (Curve("tokens", "tokens_per_s"),), "tokens a second")
    yield CurveChart(section, "Items", (Curve("items", "items_per_s"),), "items a second")
    parts = sorted(key for key in measured.step if key.startswith("seconds_"))
    yield CurveChart(
        section,
        "Where a step's time goes",
        tuple(Curve(key.removeprefix("seconds_"), key) for key in parts),
        "seconds",
        note="By the host's clock; data: what the step waited for its items. On a GPU a part includes waiting for work "
        "that was started before it.",
    )
    shares = {"padding": "padded_share", "common beginnings, computed once": "shared_share"}
    yield CurveChart(section, "Saved and wasted", tuple(Curve(n, k) for n, k in shares.items()), share=True)
    memory = {"resident": "peak_memory", "on the GPU": "peak_device_memory"}
    curves = tuple(Curve(name, key, scale=_GIB) for name, key in memory.items())
    yield CurveChart(section, "Peak memory", curves, "GiB", note="Of the first process.")
