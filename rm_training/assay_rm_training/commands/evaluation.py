"""`assay eval`: evaluate reward models on preference pairs or on a benchmark."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.system.plurals import counted
from assay_rm_training.benchmarks.catalogue import BENCHMARKS
from assay_serving.commands.engine_options import AllowFailedParityOption, CorrectOption, TokenBudgetOption

if TYPE_CHECKING:
    from assay.workspace import Workspace

PAIRS, BENCHMARK, BOTH = "Pairs (--data)", "Benchmarks (--bench)", "Options"


def register(app: typer.Typer) -> None:
    """Add the command `eval`."""
    app.command("eval")(eval_)


def eval_(
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Reward model: a name or id of the workspace, a folder, a hub id; with --bench also the URL of a "
            "reward server, and repeatable.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Pairs: a snapshot, or a file; of a principle model: judged responses.",
            rich_help_panel=PAIRS,
            show_default=False,
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Fit a temperature on these pairs and write it to the model's spec.",
            rich_help_panel=PAIRS,
        ),
    ] = False,
    bench: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"{BENCHMARKS.help()}. pairs: any pair file; principlebench: judged responses.",
            rich_help_panel=BENCHMARK,
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        list[Path] | None,
        typer.Option(
            help="The publisher's file or folder; repeatable. Without it: the hub.",
            rich_help_panel=BENCHMARK,
            show_default=False,
        ),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help='Recorded scores instead of a model: rows {"id": ..., "scores": [one a response]}, or the id of an '
            "earlier evaluation run; repeatable.",
            rich_help_panel=BENCHMARK,
            show_default=False,
        ),
    ] = None,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            help="Pairwise judge: a generative model, or the URL of a chat endpoint; repeatable.",
            rich_help_panel=BENCHMARK,
            show_default=False,
        ),
    ] = None,
    ties: Annotated[
        str,
        typer.Option(
            help="official: as the benchmark's own scorer; half: a tied pair counts 1/2.", rich_help_panel=BENCHMARK
        ),
    ] = "official",
    principle: Annotated[
        str | None,
        typer.Option(
            help="Principle for items that name none.",
            rich_help_panel=BENCHMARK,
            show_default=False,
        ),
    ] = None,
    server_model: Annotated[
        str | None,
        typer.Option(help="Which model of the URL's server.", rich_help_panel=BENCHMARK, show_default=False),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="ASSAY_API_KEY", help="Of the server.", rich_help_panel=BENCHMARK, show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report (JSON) and the items.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order of pairs and of the bootstrap.")] = 0,
    limit: Annotated[int, typer.Option(help="Only the first N pairs or items; 0 = all.")] = 0,
    device: DeviceOption = "auto",
    token_budget: TokenBudgetOption = None,
    allow_failed_parity: AllowFailedParityOption = False,
    correct: CorrectOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate reward models in float32, failures counted: on pairs (--data), or by a benchmark's protocol (--bench).

    --data gives accuracy with its interval beside the baselines, margins, calibration and slices of one model.
    --bench gives every aggregate of the official protocol with intervals, of one or several models, and what they
    differ by; with --scores it needs no model. Neither needs a workspace; in one, they leave a run record.

    Example: `assay eval --model helpful --data gold-holdout --calibrate`

    Example: `assay eval --bench rm-bench --path RM-Bench/data/total_dataset.json --model helpful`

    Example: `assay eval --bench judgebench --path judgebench.jsonl --scores scores.jsonl --json`
    """
    from assay.errors import BadInputError, NotFoundError
    from assay.workspace import Workspace

    if (data is None) == (bench is None):
        raise BadInputError("give either pairs (--data) or a benchmark (--bench)")
    here: Workspace | None = None
    try:
        here = Workspace.find(workspace)
    except NotFoundError:
        if workspace is not None:
            raise
    if bench is not None:
        if calibrate:
            raise BadInputError("--calibrate goes with --data: a benchmark is not to be fitted on")
        config = {
            "bench": bench,
            "paths": tuple(map(str, path or ())),
            "models": tuple(model or ()),
            "judges": tuple(judge or ()),
            "scores": tuple(map(str, scores or ())),
            "ties": ties,
            "principle": principle,
            "seed": seed,
            "limit": limit,
            "device": device,
            "token_budget": token_budget,
            "server_model": server_model,
            "allow_failed_parity": allow_failed_parity,
            "correct": correct,
        }
        _benchmark(here, config, out, api_key, as_json)
        return
    conflicting = {
        "--path": path,
        "--scores": scores,
        "--judge": judge,
        "--principle": principle,
        "--server-model": server_model,
    }
    if wrong := [name for name, value in conflicting.items() if value]:
        raise BadInputError(f"{wrong[0]} goes with --bench (for a pair file: --bench pairs)")
    if ties != "official":
        raise BadInputError("--ties goes with --bench; --data reports ties and half credit beside the accuracy")
    if not model or len(model) > 1:
        raise BadInputError("--data evaluates one --model; to compare several: --bench pairs --path FILE")
    assert data is not None
    if _is_principle_model(here, model[0]):
        from assay_rm_training.commands.judgments import show_judgments

        options = (data, calibrate, seed, limit, device, token_budget, out, as_json, allow_failed_parity)
        show_judgments(here, model[0], *options)
        return
    arguments = (model[0], data, calibrate, seed, limit, device, token_budget, allow_failed_parity, correct)
    _pairs(here, arguments, out, as_json)


def _is_principle_model(here: Workspace | None, name: str) -> bool:
    from assay.runs.record import locate_model
    from assay_serving.model_reference import kind_of

    return kind_of(locate_model(here, name)[0]) == "principle"


def _pairs(
    here: Workspace | None,
    options: tuple[str, str, bool, int, int, str, int | None, bool, str | None],
    out: Path | None,
    as_json: bool,
) -> None:
    from assay_rm_training.commands.evaluation_tables import print_evaluation
    from assay_rm_training.runs.evaluate import EvalConfig, evaluate_model

    report = evaluate_model(here, EvalConfig(*options), out=out)
    payload = {
        **report.evaluation.to_dict(),
        "run_id": report.run_id,
        "folder": str(report.folder) if report.folder else None,
        "fitted": asdict(report.fitted) if report.fitted else None,
        "contamination": [state.to_dict() | {"evaluated": n} for state, n in report.contamination],
        "notes": list(report.notes),
    }
    if as_json:
        emit(payload, "", as_json=True)
        return
    print_evaluation(report.evaluation)
    for note in report.notes:
        typer.echo(f"note: {note}")
    for state, prompts in report.contamination:
        typer.echo(
            f"contamination, {counted(prompts, 'prompt')} of a registered benchmark; the training data against {state}"
        )
    if report.fitted is not None:
        typer.echo(
            f"calibrated: {report.fitted.describe()}, reference {report.fitted.reference:.4g}, "
            f"fitted on {report.fitted.fitted_on} ({counted(report.fitted.pairs, 'pair')}), "
            f"written to {report.fitted_into}; "
            "the figures above are of folds left out of the fit"
        )
    if report.folder is not None:
        typer.echo(f"items and figures in {report.folder}")


def _benchmark(
    here: Workspace | None, options: dict[str, Any], out: Path | None, api_key: str | None, as_json: bool
) -> None:
    from assay_rm_training.commands.benchmark_tables import print_benchmark
    from assay_rm_training.runs.benchmark import BenchmarkConfig, run_benchmark

    result = run_benchmark(here, BenchmarkConfig(**options), out=out, api_key=api_key)
    if as_json:
        emit(result.to_dict(), "", as_json=True)
        return
    print_benchmark(result, workspace=here is not None)
