"""`assay eval-judge`: evaluate generative reward models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay_rm_training.commands.evaluation_tables import print_rows
from assay_rm_training.run_settings import JudgeEvalConfig


def register(app: typer.Typer) -> None:
    """Add the command `eval-judge`."""
    app.command("eval-judge")(eval_judge)


@settings_options(JudgeEvalConfig)
def eval_judge(
    config: JudgeEvalConfig,
    out: Annotated[Path | None, typer.Option(help="Folder for evaluation.json and items.jsonl.")] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", help="Of the endpoint.", show_default=False)
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a generative judge: accuracy by rule, both orders, consistency, position bias, parse failures, votes.

    Example: `assay eval-judge --judge judge --data gold-holdout --samples 5 --temperature 0.7`
    """
    from assay.workspace import Workspace
    from assay_rm_training.generative.judging_run import evaluate_judge_model

    report = evaluate_judge_model(Workspace.find_optional(workspace), config, api_key=api_key, out=out)
    if as_json:
        emit(report.to_dict(), "", as_json=True)
        return
    print_rows(report.title, report.evaluation.rows())
    if report.folder is not None:
        typer.echo(f"items and figures in {report.folder}")
