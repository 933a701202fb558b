"""Shared options of the `assay train ...` commands, the plan they build, the run, and its output.

Covers: `training_command`, which joins a command's own options with the shared ones. A command is a function from its
own options to a `Method`. Leaves out: the methods and their own options.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from assay.cli.options import DeviceOption, JsonOption, WorkspaceOption, emit
from assay.cli.resume import absolute_file, is_given, refuse_changes, resume_hint
from assay_rm_training.commands.eval_judge import print_rows
from assay_rm_training.commands.run_options import ForceOption, WaiveOption
from assay_rm_training.commands.train.scale_options import ScaleSettings, scale_options, with_preset

if TYPE_CHECKING:
    from assay_rm_training.evaluation.report import EvaluationReport
    from assay_rm_training.methods.method import Method
    from assay_rm_training.runs.train import TrainedModel
    from assay_rm_training.training_config import TrainingConfig


def shared_options(
    data: Annotated[str | None, typer.Option(help="Snapshot of the workspace, or a file.")] = None,
    base: Annotated[
        str, typer.Option(help="smollm2, tiny, a folder, a hub id, or or a reward model of the workspace.")
    ] = "smollm2",
    eval_data: Annotated[str | None, typer.Option(help="Held-out data: snapshot or file.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new model. Default: BASE-DATA.")] = None,
    force: ForceOption = False,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate. Default: 3e-5; with --lora 3e-4.")] = None,
    head_lr: Annotated[float, typer.Option(help="Peak rate of a new head; an existing head uses --lr.")] = 1e-3,
    batch_size: Annotated[int, typer.Option(help="Pairs (lists, rows) of one optimiser step.")] = 16,
    micro_batch_tokens: Annotated[
        int, typer.Option(help="Positions of one forward pass: time and memory only; 0 = by device.")
    ] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the data.")] = 1,
    schedule: Annotated[str, typer.Option(help="constant, linear, cosine or wsd.")] = "cosine",
    warmup_ratio: Annotated[float, typer.Option(help="Share of the steps with a rising rate.")] = 0.1,
    weight_decay: Annotated[float, typer.Option(help="AdamW's, on matrices.")] = 0.0,
    max_length: Annotated[int, typer.Option(help="Tokens of a conversation; older turns are dropped.")] = 1024,
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16, of the matrix products.")] = "auto",
    device: DeviceOption = "auto",
    lora: Annotated[int, typer.Option(help="Rank of low-rank adapters; 0 = train all weights.")] = 0,
    lora_alpha: Annotated[int | None, typer.Option(help="Default: twice the rank.")] = None,
    lora_dropout: Annotated[float, typer.Option(help="Dropout before the adapters.")] = 0.0,
    freeze_layers: Annotated[int, typer.Option(help="Keep the embeddings and this many lowest layers.")] = 0,
    seed: Annotated[int, typer.Option(help="Of data order, head, adapters and dropout.")] = 0,
    eval_every: Annotated[int, typer.Option(help="Steps between evaluations on held-out data; 0 = none.")] = 0,
    save_every: Annotated[int, typer.Option(help="Steps between saved states, for --resume; 0 = at the end.")] = 50,
    save_dtype: Annotated[str, typer.Option(help="float32 or bfloat16, of the saved weights.")] = "float32",
) -> tuple[RunNames, TrainingConfig | None]:
    """The names and the configuration, None without data (then a run is resumed, or it is an error)."""
    from assay_rm_training.training_config import LoraConfig, TrainingConfig

    names = RunNames(data, base, eval_data, name, force)
    if data is None:
        return names, None
    config = TrainingConfig(
        base=base,
        lr=lr,
        head_lr=head_lr,
        batch_size=batch_size,
        micro_batch_tokens=micro_batch_tokens,
        epochs=epochs,
        schedule=schedule,  # type: ignore[arg-type]  # checked by the configuration
        warmup_ratio=warmup_ratio,
        weight_decay=weight_decay,
        max_length=max_length,
        dtype=dtype,
        device=device,
        lora=LoraConfig(lora, lora_alpha or 2 * lora, lora_dropout) if lora else None,
        freeze_layers=freeze_layers,
        seed=seed,
        eval_every=eval_every,
        save_every=save_every,
        save_dtype=save_dtype,  # type: ignore[arg-type]  # checked by the configuration
    )
    return names, config


class RunNames(NamedTuple):
    """Data, base and model as the command line names them."""

    data: str | None
    base: str
    eval_data: str | None
    name: str | None
    force: bool


#: The command whose method is named by an option, so that it resumes a run of any method.
GENERIC = "method"


def last_options(
    context: typer.Context,
    waive_contamination: WaiveOption = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN_ID",
            help="Resume an interrupted run; only --name, --force, --parallel and waivers may change.",
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Options that end every command's list; only their signature is used."""


def training_command(command: Callable[..., Method]) -> Callable[..., None]:
    """A typer command with the shared options, then `command`'s own, which build the method."""
    parameters = {f: _parameters(f) for f in (shared_options, command, scale_options, last_options)}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        from assay.models.parallelism.distributed import is_follower

        if is_follower():  # another process owns the workspace; this one trains with it
            from assay_rm_training.training.distributed import run_worker

            return run_worker()
        method_values = {p.name: values[p.name] for p in parameters[command]}
        names, config = shared_options(**{p.name: values[p.name] for p in parameters[shared_options]})
        last = {p.name: values[p.name] for p in parameters[last_options]}
        scale = scale_options(**{p.name: values[p.name] for p in parameters[scale_options]})
        _run(names, config, command, method_values, scale, **last)
        return None

    every = [p for group in parameters.values() for p in group]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in every}
    return run


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters with evaluated annotations, as typer needs them."""
    annotations = {name: value for name, value in function.__annotations__.items() if name != "return"}
    hints = get_type_hints(SimpleNamespace(__annotations__=annotations), function.__globals__, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]


def _run(
    names: RunNames,
    config: TrainingConfig | None,
    command: Callable[..., Method],
    method_values: dict[str, Any],
    scale: ScaleSettings,
    *,
    context: typer.Context,
    waive_contamination: list[str] | None,
    resume: str | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    from assay.errors import BadInputError
    from assay.runs.record import locate_model, require_unfinished
    from assay.workspace import Workspace
    from assay_rm_training.runs.train import TrainingPlan, default_name, train_model
    from assay_rm_training.training.resume_state import FILE as STATE

    here, way = Workspace.find(workspace), command.__name__.replace("_", "-")
    waivers = waivers_of(waive_contamination or [])
    if resume is not None:
        plan = TrainingPlan.read(here, resume)
        require_unfinished(here, resume, in_others=True)
        if way != GENERIC and plan.method.name != way:
            raise BadInputError(f"the run is of assay train {plan.method.name}, not {way}", field="--resume")
        refuse_changes(context, _CHANGEABLE)
        name, force = names.name or plan.name, names.force or plan.force
        plan = replace(plan, name=name, force=force, waivers={**plan.waivers, **waivers})
        if is_given(context, "parallel"):
            plan = replace(plan, config=replace(plan.config, parallel=scale.settings["parallel"]))
    else:
        if names.data is None or config is None:
            raise BadInputError("name what to train on: --data SNAPSHOT or --data FILE")
        is_set = functools.partial(is_given, context)
        plan = TrainingPlan(
            replace(
                config,
                base=locate_model(here, names.base)[0],
                **with_preset(scale, is_set),
            ),
            absolute_file(names.data),
            absolute_file(names.eval_data) if names.eval_data else None,
            names.name or default_name(names.base, names.data),
            names.force,
            waivers,
            command(**method_values),
            absolute_file(scale.final_data) if scale.final_data else None,
        )
    rows = plan.method.read(here, plan.data)
    eval_rows = plan.method.read(here, plan.eval_data) if plan.eval_data else None
    final_rows = plan.method.read(here, plan.final_data) if plan.final_data else None
    often = f"--save-every {plan.config.save_every}"
    with resume_hint(here, f"train {way}", is_saved=lambda run: (run / STATE).is_file(), option=often):
        trained = train_model(here, plan, rows, eval_rows, resume=resume, final_rows=final_rows)
    if as_json:
        emit(_payload(trained), "", as_json=True)
    else:
        _show(trained)


#: Options that may differ when a run is resumed.
_CHANGEABLE = frozenset(("resume", "name", "force", "waive_contamination", "parallel", "workspace", "as_json"))


def waivers_of(entries: list[str]) -> dict[str, str]:
    from assay.errors import BadInputError

    waivers = {}
    for entry in entries:
        benchmark, equals, reason = entry.partition("=")
        if not (benchmark.strip() and equals and reason.strip()):
            raise BadInputError(f"--waive-contamination takes BENCHMARK=REASON, not {entry!r}")
        waivers[benchmark.strip()] = reason.strip()
    return waivers


def _payload(trained: TrainedModel) -> dict[str, Any]:
    return {
        "model": trained.name,
        "path": str(trained.path),
        "artifact_id": trained.artifact_id,
        "run_id": trained.run_id,
        "metrics_file": str(trained.folder / "metrics.jsonl"),
        "parity": trained.spec.parity,
        **trained.metrics,
    }


def _show(trained: TrainedModel) -> None:
    from assay.runs.json_log import read_metrics
    from assay.system.plurals import counted
    from assay_rm_training.runs.sparkline import sparkline

    summary = trained.summary
    losses = [row["loss"] for row in read_metrics(trained.folder) if row["kind"] == "train"]
    unit = trained.unit
    speed = f"{summary.items_per_s:.2f} {unit}/s, {summary.tokens_per_s:.0f} tokens/s"
    typer.echo(
        f"{trained.name}: {counted(trained.metrics[unit], unit)}, {counted(summary.steps, 'step')} in "
        f"{summary.seconds:.0f} s ({speed}, "
        f"{100 * summary.padded_share:.0f} % padding, {trained.metrics['autocast']} on {trained.metrics['device']})"
    )
    for reason, count in trained.metrics["left_out"].items():
        hint = f" in {trained.spec.trained_length} tokens (--max-length)" if reason.endswith("does not fit") else ""
        typer.echo(f"  left out {count}: {reason}{hint}")
    if trained.spec.trained_length < trained.asked_length:
        typer.echo(f"  trained length {trained.spec.trained_length}: the base reads no more tokens")
    if losses:
        typer.echo(f"loss {sparkline(losses)} {losses[0]:.3f} to {losses[-1]:.3f}")
    if summary.processes > 1:
        typer.echo(f"{summary.processes} processes ({summary.parallel})")
    if trained.metrics["chosen"]:
        typer.echo(f"weights: {trained.metrics['chosen']}")
    parity = trained.metrics["parity_check"]
    typer.echo(
        f"saved and reloaded: scores equal within {parity['largest_difference']:.1e} "
        f"({counted(parity['responses'], 'response')})"
    )
    if trained.evaluation is not None:
        show_report(trained.evaluation)
    if seen := trained.metrics["evaluated_seen"]:
        typer.echo(f"note: {seen} of the evaluated rows {'has' if seen == 1 else 'have'} a prompt that was trained on")
    for state in trained.contamination:
        typer.echo(f"contamination: {state}")
    typer.echo(f"model {trained.path} ({trained.artifact_id}), run {trained.run_id}")


def show_report(report: EvaluationReport) -> None:
    """As tables on standard output."""
    from assay_rm_training.commands.evaluation_tables import print_evaluation
    from assay_rm_training.evaluation.pairs import PairEvaluation

    if isinstance(report, PairEvaluation):
        print_evaluation(report)
        return
    from assay_rm_training.evaluation.principle import PrincipleEvaluation

    if isinstance(report, PrincipleEvaluation):
        from assay_rm_training.commands.judgments import print_judgments

        print_judgments(report)
        return
    print_rows(report.model.name, report.card_rows())
