"""Evaluations as tables on standard output. Leaves out: benchmarks (`benchmark_tables.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from assay.system.plurals import counted

if TYPE_CHECKING:
    from assay_rm_training.calibration.measures import CalibrationReport
    from assay_rm_training.evaluation.pairs import PairEvaluation
    from assay_rm_training.evaluation.principle import PrincipleEvaluation
    from assay_rm_training.evaluation.report import EvaluationReport

WARNING = "WARNING"  #: the name of a row that is one (`EvaluationReport.warning_rows`)
SLICES_SHOWN = PRINCIPLES_SHOWN = 20


def print_report(report: EvaluationReport) -> None:
    from assay_rm_training.evaluation.pairs import PairEvaluation
    from assay_rm_training.evaluation.principle import PrincipleEvaluation

    if isinstance(report, PairEvaluation):
        print_evaluation(report)
    elif isinstance(report, PrincipleEvaluation):
        print_judgments(report)
    else:
        print_rows(report.model.name, report.card_rows())


def print_rows(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of two columns; warnings are lines below it, which a column would make narrow."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for row in rows:
        if row[0] != WARNING:
            table.add_row(*row)
    Console().print(table)
    for name, text in rows:
        if name == WARNING:
            typer.echo(f"{WARNING}: {text}")


def print_evaluation(evaluation: PairEvaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    from assay.statistics.intervals import interval_text

    accuracy = evaluation.accuracy
    console = Console()
    rows = [
        ("accuracy (a tie is wrong)", f"{accuracy.value:.4f}"),
        ("  95 %, Wilson", f"{accuracy.wilson.low:.4f} to {accuracy.wilson.high:.4f}"),
        (
            f"  95 %, {counted(accuracy.groups, 'prompt')}",
            interval_text(accuracy.interval),
        ),
        *evaluation.warning_rows(),
        ("  ties; accuracy with half credit", f"{accuracy.ties}; {accuracy.half_credit:.4f}"),
        ("choosing the longer response (characters)", f"{evaluation.length_baseline:.4f}"),
        ("constant answer", f"{evaluation.majority_baseline:.4f}"),
        ("margin, mean ± deviation", f"{evaluation.margin_mean:.4f} ± {evaluation.margin_std:.4f}"),
        ("calibration error (10 bins), Brier, NLL", _calibration(evaluation.calibration)),
        ("truncated pairs", f"{100 * evaluation.truncated_share:.1f} %"),
    ]
    if evaluation.calibrated is not None:
        rows.insert(-1, (f"  calibrated, {_fitted(evaluation.calibrated)}", _calibration(evaluation.calibrated)))
    if evaluation.reward_length_correlation is not None:
        rows.append(("correlation of reward and length in characters", f"{evaluation.reward_length_correlation:.3f}"))
    if evaluation.uncertainty is not None:
        rows += evaluation.uncertainty.rows()
    if evaluation.failures:
        failed = ", ".join(f"{n} ({code})" for code, n in evaluation.failures.items())
        rows.append(("left out, could not be scored", failed))
        rows.append(("accuracy with those as wrong", f"{evaluation.accuracy_failures_wrong:.4f}"))
    print_rows(f"{evaluation.model.name} on {counted(evaluation.pairs, 'pair')}", rows)
    if evaluation.slices:
        slices = Table("by", "slice", "pairs", "accuracy", "95 %", "longer", title_justify="left")
        for part in evaluation.slices[:SLICES_SHOWN]:
            interval = interval_text(part.interval, ".3f")
            slices.add_row(part.by, part.name, str(part.pairs), f"{part.accuracy:.3f}", interval, f"{part.length:.3f}")
        console.print(slices)
        console.print("longer: accuracy of choosing the response of more characters")
        if len(evaluation.slices) > SLICES_SHOWN:
            console.print(f"{len(evaluation.slices) - SLICES_SHOWN} more slices in evaluation.json")


def print_judgments(evaluation: PrincipleEvaluation) -> None:
    """The evaluation and its principles as tables on standard output."""
    from rich.console import Console
    from rich.table import Table

    from assay.statistics.intervals import interval_text

    print_rows(f"{evaluation.model.name} on {counted(evaluation.rows, 'judged response')}", evaluation.card_rows())
    console = Console()
    parts = Table("principle", "rows", "yes", "accuracy", "95 %", "base rate", title_justify="left")
    for part in evaluation.principles[:PRINCIPLES_SHOWN]:
        interval = interval_text(part.interval, ".3f")
        baseline = "" if part.baseline is None else f"{part.baseline:.3f}"
        parts.add_row(
            part.name, str(part.rows), f"{100 * part.yes_share:.0f} %", f"{part.accuracy:.3f}", interval, baseline
        )
    console.print(parts)
    if len(evaluation.principles) > PRINCIPLES_SHOWN:
        console.print(f"{len(evaluation.principles) - PRINCIPLES_SHOWN} more principles in evaluation.json")


def _fitted(report: CalibrationReport) -> str:
    return report.method + (f" {report.temperature:.4g}" if report.method == "temperature" else "")


def _calibration(report: CalibrationReport) -> str:
    return f"{report.ece:.4f}, {report.brier:.4f}, {report.nll:.4f}"
