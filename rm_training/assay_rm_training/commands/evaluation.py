"""`assay eval` and `assay eval-judge`: evaluate reward models on pairs or on a benchmark, and generative judges."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import replace_parameter, settings_options
from assay.compute.executor import LOCAL, OnOption, open_executor
from assay.settings import fields_of
from assay.system.plurals import counted
from assay_rm_training.commands.evaluation_tables import print_rows
from assay_rm_training.run_settings import BENCHMARK, PAIRS, BenchmarkConfig, EvalConfig, JudgeEvalConfig

if TYPE_CHECKING:
    from assay.compute.executor import Executor
    from assay.workspace import Workspace
    from assay_rm_training.runs.evaluate import EvaluationRun, PrincipleEvaluationRun


@dataclass(frozen=True)
class EvalOptions:
    """`settings`: fields of `EvalConfig` (except `model`) and of `BenchmarkConfig`, by name."""

    settings: dict[str, Any]

    def of(self, config: type) -> dict[str, Any]:
        return {field.name: self.settings[field.name] for field in fields(config) if field.name in self.settings}


_DECLARED = {field.name: field for config in (BenchmarkConfig, EvalConfig) for field in fields_of(config)}
_OPTIONS = [
    replace(field, default=None if field.required else field.default)
    for name, field in sorted(_DECLARED.items(), key=lambda item: item[1].panel != PAIRS)
    if name != "model"
]


@replace_parameter(EvalOptions, _OPTIONS, lambda **settings: EvalOptions(settings))
def eval_(
    options: EvalOptions,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="ASSAY_API_KEY", help="Of the server.", rich_help_panel=BENCHMARK, show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report (JSON) and the items.", show_default=False)
    ] = None,
    on: OnOption = LOCAL,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate reward models, failures counted: on pairs (--data), or by a benchmark's protocol (--bench).

    --data gives accuracy with its interval beside the baselines, margins, calibration and slices of one model.
    --bench gives every aggregate of the official protocol with intervals, of one or several models, and what they
    differ by; with --scores it needs no model. Neither needs a workspace; in one, they leave a run record. With --on,
    models score on shards, and what was interrupted resumes when it is given again.

    Example: `assay eval --model helpful --data gold-holdout --calibrate`

    Example: `assay eval --bench rm-bench --path RM-Bench/data/total_dataset.json --model helpful`

    Example: `assay eval --bench judgebench --path judgebench.jsonl --scores scores.jsonl --json`
    """
    from assay.errors import BadInputError
    from assay.runs.record import locate_model
    from assay.workspace import Workspace
    from assay_serving.model_reference import kind_of

    settings = options.settings
    if (settings["data"] is None) == (settings["bench"] is None):
        raise BadInputError("give either pairs (--data) or a benchmark (--bench)")
    here = Workspace.find_optional(workspace)
    executor = open_executor(on) if on != LOCAL else None
    if settings["bench"] is not None:
        from assay_rm_training.commands.benchmark_tables import print_benchmark
        from assay_rm_training.runs.benchmark import run_benchmark

        if settings["calibrate"]:
            raise BadInputError("--calibrate goes with --data: a benchmark is not to be fitted on")
        result = run_benchmark(
            here, BenchmarkConfig(**options.of(BenchmarkConfig)), out=out, api_key=api_key, executor=executor
        )
        if as_json:
            emit(result.to_dict(), "", as_json=True)
        else:
            print_benchmark(result, workspace=here is not None)
        _end_unread(result.unread)
        return
    if wrong := [name for name in _OF_BENCHMARKS if settings[name]]:
        raise BadInputError(f"{_DECLARED[wrong[0]].option} goes with --bench (for a pair file: --bench pairs)")
    if settings["ties"] != "official":
        raise BadInputError("--ties goes with --bench; --data reports ties and half credit beside the accuracy")
    if len(settings["models"]) != 1:
        raise BadInputError("--data evaluates one --model; to compare several: --bench pairs --path FILE")
    config = EvalConfig(model=settings["models"][0], **options.of(EvalConfig))
    if kind_of(locate_model(here, config.model)[0]) == "principle":
        if executor is not None:
            raise BadInputError("--on is for pairs and benchmarks; judged responses are scored here")
        _judgments(here, config, out, as_json)
    else:
        _pairs(here, config, out, executor, as_json)


#: Settings that are refused without --bench.
_OF_BENCHMARKS = ("paths", "scores", "judges", "principle", "server_model")


def _pairs(
    here: "Workspace | None", config: EvalConfig, out: Path | None, executor: "Executor | None", as_json: bool
) -> None:
    from assay_rm_training.commands.evaluation_tables import print_evaluation
    from assay_rm_training.runs.evaluate import evaluate_model

    report = evaluate_model(here, config, out=out, executor=executor)
    if as_json:
        contamination = [state.to_dict() | {"evaluated": n} for state, n in report.contamination]
        emit(
            _payload(report)
            | {"contamination": contamination, "notes": list(report.notes)}
            | {"contamination_lineage": [asdict(use) for use in report.lineage]},
            "",
            as_json=True,
        )
        return
    print_evaluation(report.evaluation)
    for note in report.notes:
        typer.echo(f"note: {note}")
    for state, prompts in report.contamination:
        typer.echo(
            f"contamination, {counted(prompts, 'prompt')} of a registered benchmark; the training data against {state}"
        )
    for use in report.lineage:
        typer.echo(f"contamination, carried by the model: {use}")
    if report.fitted is not None:
        typer.echo(
            f"calibrated: {report.fitted.describe()}, reference {report.fitted.reference:.4g}, "
            f"fitted on {report.fitted.fitted_on} ({counted(report.fitted.pairs, 'pair')}), "
            f"written to {report.fitted_into}; "
            "the figures above are of folds left out of the fit"
        )
    if report.folder is not None:
        typer.echo(f"items and figures in {report.folder}")


def _judgments(here: "Workspace | None", config: EvalConfig, out: Path | None, as_json: bool) -> None:
    """Of a principle model: judged responses instead of pairs."""
    from assay_rm_training.commands.evaluation_tables import print_judgments
    from assay_rm_training.runs.evaluate import evaluate_judgments

    report = evaluate_judgments(here, config, out=out)
    if as_json:
        emit(_payload(report), "", as_json=True)
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


def _payload(report: "EvaluationRun | PrincipleEvaluationRun") -> dict[str, Any]:
    return {
        **report.evaluation.to_dict(),
        "run_id": report.run_id,
        "folder": str(report.folder) if report.folder else None,
        "fitted": asdict(report.fitted) if report.fitted else None,
    }


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
    else:
        print_rows(report.title, report.evaluation.rows())
        if report.folder is not None:
            typer.echo(f"items and figures in {report.folder}")
    _end_unread(() if report.unread is None else (report.unread,))


def _end_unread(lines: Sequence[str]) -> None:
    """End with the code of bad input where most replies of a judge could not be read: what was printed is no result."""
    from assay.errors import BadInputError

    for line in lines:
        typer.echo(f"error: {line}", err=True)
    if lines:
        raise typer.Exit(BadInputError.exit_code)
