"""What the page of a reward-model training shows: the run in short, learning, held-out slices, optimiser, speed.

Covers: sections made from the rows of `metrics.jsonl`, of a run that has ended or still goes on. Leaves out: reading
the rows, settings and final figures (`run_pages.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.wording import counted
from assay_rm_training.early_choice import Choice, choose
from assay_web.report import BarChart, Block, Figure, Figures, LineChart, Section, Series, Table

Row = Mapping[str, Any]
_RECENT = 20  #: steps that the share of clipped ones is taken over
_DIVISIONS = {
    "source": "source",
    "category": "category",
    "length": "length of the longer response, in characters",
    "longer": "which response is longer",
    "margin": "margin of the label",
}
_CURVES_SHOWN = 8  #: parts of a division that get a curve


def training_sections(rows: Sequence[Row], config: Mapping[str, Any]) -> list[Section]:
    """`config`: the run record's; its `config` holds the training's settings."""
    settings = config.get("config", {})
    steps = [row for row in rows if row.get("kind", "train") == "train"]
    evaluations = [row for row in rows if row.get("kind") == "eval"]
    metric = str(settings.get("metric", "nll"))
    choice = choose(evaluations, metric if all(metric in row for row in evaluations) else "nll")
    best = next((row for row in evaluations if choice is not None and row["step"] == choice.step), None)
    sections = [
        Section("In short", [Figures(_in_short(steps, best, choice, keeps=settings.get("keep") == "best"))]),
        Section("Curves", _learning(steps, evaluations), f"{len(rows)} rows of metrics.jsonl."),
    ]
    if best is not None and choice is not None:
        sections.append(Section("Held out", _held_out(evaluations, best), _held_out_intro(best, choice)))
    sections.append(Section("Optimiser", _optimiser(steps)))
    sections.append(Section("Speed and memory", _speed(steps)))
    return sections


def _in_short(steps: Sequence[Row], best: Row | None, choice: Choice | None, *, keeps: bool) -> list[Figure]:
    if not steps:
        return [Figure("steps", 0, "nothing was measured yet")]
    last = steps[-1]
    figures = [Figure("steps", last["step"], f"{last.get('epoch', 0):.2f} epochs, {last.get('seconds', 0):.0f} s")]
    if best is not None and choice is not None:
        name = "best step (kept)" if keeps else "best step"
        figures.append(
            Figure(
                name, choice.step, f"{choice.metric} {choice.value:.4f} of {counted(choice.evaluations, 'evaluation')}"
            )
        )
        if "accuracy_low" in best:
            note = f"95 %: {best['accuracy_low']:.3f} to {best['accuracy_high']:.3f}"
            if "length_baseline" in best:
                note += f"; choosing the longer (characters): {best['length_baseline']:.3f}"
            figures.append(Figure("held-out accuracy there", best["accuracy"], note))
    if computed := sum(row.get("computed_tokens", 0) for row in steps):
        padding = sum(row["padded_share"] * row["computed_tokens"] for row in steps) / computed
        figures.append(Figure("padding", f"{100 * padding:.1f} %", "of what went through the model"))
    if all("shared_share" in row for row in steps):
        tokens = sum(row["tokens"] for row in steps)
        shared = sum(row["shared_share"] * row["tokens"] for row in steps) / tokens
        figures.append(Figure("computed once", f"{100 * shared:.1f} %", "of tokens: common beginnings, not repeated"))
    if "clipped" in last:
        clipped = sum(row["clipped"] for row in steps) / len(steps)
        figures.append(Figure("clipped", f"{100 * clipped:.0f} %", "of steps"))
    return figures


def _learning(steps: Sequence[Row], evaluations: Sequence[Row]) -> list[Block]:
    held = "nll" if any("nll" in row for row in evaluations) else "loss"
    baselines = [row["length_baseline"] for row in evaluations if "length_baseline" in row]
    held_accuracy = _with_interval(evaluations)
    notes = ["The band is the 95 % interval (Wilson)."] if any(series.has_band for series in held_accuracy) else []
    if baselines:
        notes.append("The line across: choosing the longer response (characters).")
    charts: list[Block] = [
        LineChart("Loss", _series(steps, training="loss") + _series(evaluations, **{"held-out": held}), "step", "nats"),
        LineChart(
            "Accuracy",
            _series(steps, **{"training batch": "accuracy"}) + held_accuracy,
            "step",
            percent=True,
            reference=baselines[-1] if baselines else None,
            note=" ".join(notes),
        ),
        LineChart(
            "Margin, chosen - rejected",
            _series(steps, **{"training batch": "margin"}) + _series(evaluations, **{"held-out": "margin"}),
            "step",
            "reward",
        ),
    ]
    if any("chosen_std" in row for row in steps):
        sides = [s for side in ("chosen", "rejected") for s in _with_deviation(steps, side)]
        charts.append(LineChart("Rewards", sides, "step", "reward", note="Mean of the batch; the band is a deviation."))
    if any("ece" in row for row in evaluations):
        series = _series(evaluations, **{"expected calibration error": "ece", "Brier score": "brier"})
        charts.append(LineChart("Calibration, held-out", series, "step"))
    return charts


def _held_out_intro(best: Row, choice: Choice) -> str:
    return (
        f"Step {choice.step}, the best of {choice.evaluations} by {choice.metric}, on {best.get('items', '?')} items "
        "in the training's number format. The best of several flatters; intervals are Wilson's, 95 %."
    )


def _held_out(evaluations: Sequence[Row], best: Row) -> list[Block]:
    blocks: list[Block] = []
    parts = list(best.get("slices", ()))
    for by, title in _DIVISIONS.items():
        found = [part for part in parts if part["by"] == by]
        if not found:
            continue
        accuracy = Series(
            "accuracy",
            [part["accuracy"] for part in found],
            low=[part["wilson"]["low"] for part in found],
            high=[part["wilson"]["high"] for part in found],
        )
        longer = Series("choosing the longer response (characters)", [part["length"] for part in found])
        series = [accuracy] if by == "longer" else [accuracy, longer]
        names = [f"{part['name']} ({part['pairs']})" for part in found]
        note = "In brackets: pairs. The line across: the accuracy on all."
        chart = BarChart(f"Accuracy by {title}", names, series, note=note, percent=True, reference=best["accuracy"])
        blocks.append(chart)
        if len(evaluations) > 1:
            curves = [_slice_curve(evaluations, by, part["name"]) for part in found[:_CURVES_SHOWN]]
            blocks.append(LineChart(f"Accuracy by {title}, over the run", curves, "step", percent=True))
    if not parts:
        return [Table(("figure", "value"), [(k, v) for k, v in best.items() if isinstance(v, int | float)])]
    table = [
        (
            part["by"],
            part["name"],
            part["pairs"],
            part["accuracy"],
            f"{part['wilson']['low']:.3f} to {part['wilson']['high']:.3f}",
            part["length"],
            part["margin"],
        )
        for part in parts
    ]
    columns = ("by", "part", "pairs", "accuracy", "95 %", "longer", "mean margin")
    note = "longer: accuracy of choosing the response of more characters"
    return [*blocks, Table(columns, table, title="All parts", note=note)]


def _optimiser(steps: Sequence[Row]) -> list[Block]:
    charts: list[Block] = [
        LineChart("Learning rate", _series(steps, backbone="lr"), "step"),
        LineChart("Gradient norm", _series(steps, **{"before clipping": "grad_norm"}), "step"),
    ]
    if any(row.get("clipped") for row in steps):
        shares = []
        for end in range(1, len(steps) + 1):
            recent = steps[max(0, end - _RECENT) : end]
            shares.append(sum(row.get("clipped", 0.0) for row in recent) / len(recent))
        series = [Series(f"of the last {_RECENT} steps", shares, [float(row["step"]) for row in steps])]
        charts.append(LineChart("Clipped", series, "step", percent=True))
    if len({row.get("items") for row in steps[:-1]}) > 1:
        charts.append(LineChart("Batch size", _series(steps, items="items"), "step"))
    if any("update_norm" in row for row in steps):
        charts.append(LineChart("How far a step moves the weights", _series(steps, norm="update_norm"), "step"))
    return charts


def _speed(steps: Sequence[Row]) -> list[Block]:
    names = sorted({name for row in steps for name in row if name.startswith("seconds_")})
    charts: list[Block] = [LineChart("Speed", _series(steps, tokens="tokens_per_s"), "step", "tokens a second")]
    if any("items_per_s" in row for row in steps):
        charts.append(LineChart("Items", _series(steps, items="items_per_s"), "step", "items a second"))
    if names:
        parts = {name.removeprefix("seconds_"): name for name in names}
        charts.append(
            LineChart(
                "Where a step's time goes",
                _series(steps, **parts),
                "step",
                "seconds",
                note="By the host's clock; data: what the step waited for its items. On a GPU a part includes waiting "
                "for work that was started before it.",
            )
        )
    shares = {"padding": "padded_share", "common beginnings, computed once": "shared_share"}
    charts.append(LineChart("Saved and wasted", _series(steps, **shares), "step", percent=True))
    memory = {"resident": "peak_memory", "on the GPU": "peak_device_memory"}
    if series := [_scaled(one, 2**-30) for one in _series(steps, **memory)]:
        charts.append(LineChart("Peak memory", series, "step", "GiB", note="Of the first process."))
    return charts


def _series(rows: Sequence[Row], **curves: str) -> list[Series]:
    """Name of a curve -> key of the row; curves that no row has are left out."""
    series = []
    for name, key in curves.items():
        points = [row for row in rows if key in row]
        if points:
            series.append(Series(name, [row[key] for row in points], [float(row["step"]) for row in points]))
    return series


def _scaled(series: Series, factor: float) -> Series:
    return Series(series.name, [None if y is None else y * factor for y in series.y], series.x)


def _with_interval(evaluations: Sequence[Row]) -> list[Series]:
    points = [row for row in evaluations if "accuracy" in row]
    if not points:
        return []
    low, high = ([row.get(f"accuracy_{end}") for row in points] for end in ("low", "high"))
    x = [float(row["step"]) for row in points]
    return [Series("held-out", [row["accuracy"] for row in points], x, low=low, high=high)]


def _with_deviation(steps: Sequence[Row], side: str) -> list[Series]:
    points = [row for row in steps if f"{side}_std" in row]
    means = [row[f"{side}_mean"] for row in points]
    spread = [row[f"{side}_std"] for row in points]
    low = [mean - deviation for mean, deviation in zip(means, spread, strict=True)]
    high = [mean + deviation for mean, deviation in zip(means, spread, strict=True)]
    return [Series(side, means, [float(row["step"]) for row in points], low=low, high=high)]


def _slice_curve(evaluations: Sequence[Row], by: str, name: str) -> Series:
    found = [
        next((part["accuracy"] for part in row.get("slices", ()) if (part["by"], part["name"]) == (by, name)), None)
        for row in evaluations
    ]
    return Series(name, found, [float(row["step"]) for row in evaluations])
