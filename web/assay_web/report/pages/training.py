"""Report sections of a reward-model training: summary, learning curves, held-out slices, optimiser, speed.

Covers: sections made from the rows of `metrics.jsonl`, of a finished or running run. Leaves out: which curves
there are (`run_charts`), reading the rows, settings and final figures (`runs`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.statistics.intervals import Interval, interval_text
from assay.system.plurals import counted
from assay_rm_training.training.early_stopping import BestEvaluation, best_evaluation
from assay_web.report.content import BarChart, Block, Figures, Headline, Section, Series, Table
from assay_web.report.pages.curves import line_chart
from assay_web.run_charts import MetricExtents, slice_charts, training_charts, with_slices
from assay_web.run_charts.training import DIVISIONS

Row = Mapping[str, Any]


def training_sections(rows: Sequence[Row], config: Mapping[str, Any]) -> list[Section]:
    """`config`: the run record's; its `config` holds the training's settings."""
    settings = config.get("config", {})
    steps = [row for row in rows if row.get("kind", "train") == "train"]
    evaluations = [row for row in rows if row.get("kind") == "eval"]
    metric = str(settings.get("metric", "nll"))
    choice = best_evaluation(evaluations, metric if all(metric in row for row in evaluations) else "nll")
    best = next((row for row in evaluations if choice is not None and row["step"] == choice.step), None)
    charts: dict[str, list[Block]] = {}
    for chart in training_charts(MetricExtents.of_rows(steps, evaluations)):
        charts.setdefault(chart.section, []).append(line_chart(chart, steps, evaluations))
    sections = [
        Section("In short", [Figures(_in_short(steps, best, choice, keeps=settings.get("keep") == "best"))]),
        Section("Curves", charts.get("Curves", []), f"{len(rows)} rows of metrics.jsonl."),
    ]
    if best is not None and choice is not None:
        sections.append(Section("Held out", _held_out(evaluations, best), _held_out_intro(best, choice)))
    sections += [Section(title, charts.get(title, [])) for title in ("Optimiser", "Speed and memory")]
    return sections


def _in_short(steps: Sequence[Row], best: Row | None, choice: BestEvaluation | None, *, keeps: bool) -> list[Headline]:
    if not steps:
        return [Headline("steps", 0, "nothing was measured yet")]
    last = steps[-1]
    figures = [Headline("steps", last["step"], f"{last.get('epoch', 0):.2f} epochs, {last.get('seconds', 0):.0f} s")]
    if best is not None and choice is not None:
        name = "best step (kept)" if keeps else "best step"
        figures.append(
            Headline(
                name, choice.step, f"{choice.metric} {choice.value:.4f} of {counted(choice.evaluations, 'evaluation')}"
            )
        )
        if "accuracy_low" in best:
            note = f"95 %: {best['accuracy_low']:.3f} to {best['accuracy_high']:.3f}"
            if "length_baseline" in best:
                note += f"; choosing the longer (characters): {best['length_baseline']:.3f}"
            figures.append(Headline("held-out accuracy there", best["accuracy"], note))
    if computed := sum(row.get("computed_tokens", 0) for row in steps):
        padding = sum(row["padded_share"] * row["computed_tokens"] for row in steps) / computed
        figures.append(Headline("padding", f"{100 * padding:.1f} %", "of what went through the model"))
    if all("shared_share" in row for row in steps):
        tokens = sum(row["tokens"] for row in steps)
        shared = sum(row["shared_share"] * row["tokens"] for row in steps) / tokens
        figures.append(Headline("computed once", f"{100 * shared:.1f} %", "of tokens: common beginnings, not repeated"))
    if "clipped" in last:
        clipped = sum(row["clipped"] for row in steps) / len(steps)
        figures.append(Headline("clipped", f"{100 * clipped:.0f} %", "of steps"))
    return figures


def _held_out_intro(best: Row, choice: BestEvaluation) -> str:
    return (
        f"Step {choice.step}, the best of {choice.evaluations} by {choice.metric}, on {best.get('items', '?')} items "
        "in the training's number format. The best of several flatters; intervals of "
        "slices are by prompt, 95 %, none under 10 prompts."
    )


def _held_out(evaluations: Sequence[Row], best: Row) -> list[Block]:
    blocks: list[Block] = []
    parts = list(best.get("slices", ()))
    for by, title in DIVISIONS.items():
        slices = [part for part in parts if part["by"] == by]
        if not slices:
            continue
        accuracy = Series(
            "accuracy",
            [part["accuracy"] for part in slices],
            low=[(part.get("interval") or {}).get("low") for part in slices],
            high=[(part.get("interval") or {}).get("high") for part in slices],
        )
        longer = Series("choosing the longer response (characters)", [part["length"] for part in slices])
        series = [accuracy] if by == "longer" else [accuracy, longer]
        names = [f"{part['name']} ({part['pairs']})" for part in slices]
        note = "In brackets: pairs. The line across: the accuracy on all."
        chart = BarChart(f"Accuracy by {title}", names, series, note=note, percent=True, reference=best["accuracy"])
        blocks.append(chart)
        if len(evaluations) > 1:
            flat = [with_slices(row) for row in evaluations]
            curves = slice_charts({by: [part["name"] for part in slices]})
            blocks += [line_chart(each, (), flat) for each in curves]
    if not parts:
        return [Table(("figure", "value"), [(k, v) for k, v in best.items() if isinstance(v, int | float)])]
    table = [
        (
            part["by"],
            part["name"],
            part["pairs"],
            part["accuracy"],
            interval_text(Interval(**part["interval"]) if part.get("interval") else None, ".3f"),
            part["length"],
            part["margin"],
        )
        for part in parts
    ]
    columns = ("by", "part", "pairs", "accuracy", "95 %", "longer", "mean margin")
    note = "longer: accuracy of choosing the response of more characters"
    return [*blocks, Table(columns, table, title="All parts", note=note)]
