"""`assay eval --data` of a principle model: judged responses instead of pairs, as tables or JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from assay.cli.options import emit
from assay.system.plurals import counted

if TYPE_CHECKING:
    from assay.workspace import Workspace
    from assay_rm_training.evaluation.principle import PrincipleEvaluation

PRINCIPLES_SHOWN = 20


def show_judgments(
    here: Workspace | None,
    model: str,
    data: str,
    calibrate: bool,
    seed: int,
    limit: int,
    device: str,
    token_budget: int | None,
    out: Path | None,
    as_json: bool,
    allow_failed_parity: bool = False,
) -> None:
    """Evaluate and print."""
    from assay_rm_training.runs.evaluate_principle import evaluate_judgments

    report = evaluate_judgments(
        here,
        model,
        data,
        calibrate=calibrate,
        seed=seed,
        limit=limit,
        device=device,
        token_budget=token_budget,
        out=out,
        allow_failed_parity=allow_failed_parity,
    )
    if as_json:
        payload = {
            **report.evaluation.to_dict(),
            "run_id": report.run_id,
            "folder": str(report.folder) if report.folder else None,
            "fitted": asdict(report.fitted) if report.fitted else None,
        }
        emit(payload, "", as_json=True)
        return
    print_judgments(report.evaluation)
    if report.fitted is not None and report.before is not None:
        before, after = report.before, report.evaluation
        typer.echo(
            f"calibrated: {report.fitted.describe()}, reference {report.fitted.reference:.4g}, written to "
            f"{report.fitted_into}; on the same judgments: log-likelihood loss {before.nll:.4f} to {after.nll:.4f}, "
            f"calibration error {before.ece:.4f} to {after.ece:.4f}, right by P(Yes) > 1/2 {before.agreement:.4f} to "
            f"{after.agreement:.4f}"
        )
    if report.folder is not None:
        typer.echo(f"items and figures in {report.folder}")


def print_judgments(evaluation: PrincipleEvaluation) -> None:
    """The evaluation and its principles as tables on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    title = f"{evaluation.model.name} on {counted(evaluation.rows, 'judged response')}"
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in evaluation.card_rows():
        table.add_row(name, value)
    console.print(table)
    parts = Table("principle", "rows", "yes", "accuracy", "95 %", "base rate", title_justify="left")
    for part in evaluation.principles[:PRINCIPLES_SHOWN]:
        interval = f"{part.wilson.low:.3f} to {part.wilson.high:.3f}"
        baseline = "" if part.baseline is None else f"{part.baseline:.3f}"
        parts.add_row(
            part.name, str(part.rows), f"{100 * part.yes_share:.0f} %", f"{part.accuracy:.3f}", interval, baseline
        )
    console.print(parts)
    if len(evaluation.principles) > PRINCIPLES_SHOWN:
        console.print(f"{len(evaluation.principles) - PRINCIPLES_SHOWN} more principles in evaluation.json")
