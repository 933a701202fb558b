"""`assay eval-judge`: evaluate generative reward models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay_serving.commands.engine_options import AllowFailedParityOption


def register(app: typer.Typer) -> None:
    """Add the command `eval-judge`."""
    app.command("eval-judge")(eval_judge)


def eval_judge(
    judge: Annotated[
        str, typer.Option(help="Generative model: a name of the workspace, a folder, smollm2, or an endpoint's URL.")
    ],
    data: Annotated[str, typer.Option(help="Judged rows or pairs: a snapshot or a file.")],
    model: Annotated[str | None, typer.Option(help="The endpoint's model.", show_default=False)] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="Of a model without a spec of its own. Default: pairwise.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option("--samples", "-k", min=1, help="Votes per question and order. Default: the model's.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Default: the model's; 0.7 where several samples are asked for.")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="Default: the model's.")] = None,
    vote: Annotated[str | None, typer.Option(help="mean (of probabilities) or majority. Default: the model's.")] = None,
    content_free: Annotated[
        bool, typer.Option("--content-free", help="Replace responses by content-free ones; none may win.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Only the first N rows; 0 = all.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the samples and of the bootstrap.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for evaluation.json and items.jsonl.")] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", envvar="OPENAI_API_KEY", help="Of the endpoint.", show_default=False)
    ] = None,
    device: DeviceOption = "auto",
    allow_failed_parity: AllowFailedParityOption = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a generative judge: accuracy by rule, both orders, consistency, position bias, parse failures, votes.

    Example: `assay eval-judge --judge judge --data gold-holdout --samples 5 --temperature 0.7`
    """
    from assay_rm_training.generative.judging_run import JudgeEvalConfig, evaluate_judge_model

    config = JudgeEvalConfig(
        judge,
        data,
        model=model,
        format=form,
        samples=samples,
        temperature=temperature,
        max_new_tokens=max_new_tokens,
        vote=vote,
        content_free=content_free,
        limit=limit,
        seed=seed,
        device=device,
        allow_failed_parity=allow_failed_parity,
    )
    report = evaluate_judge_model(workspace, config, api_key=api_key, out=out)
    if as_json:
        emit(report.to_dict(), "", as_json=True)
        return
    print_rows(report.title, report.evaluation.rows())
    if report.folder is not None:
        typer.echo(f"items and figures in {report.folder}")


def print_rows(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """A table of two columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
