"""Shared options of the `assay train ...` commands, the plan they build, the run, and its output.

Covers: `training_command`, which joins a command's own options with those of `TrainingConfig`. A command is a function
from its own options to a `Method`. Leaves out: the methods and their own options, what every command has
(`assay.cli.options`), opening a model (`assay_serving.commands.engine_options`).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.resume import absolute_file, is_given, refuse_changes, resume_hint
from assay.cli.settings_options import option_parameters
from assay.cli.sweep import SweepOptions, members_of, run_group, show_group, sweep_options
from assay.compute.executor import LOCAL
from assay.errors import BadInputError
from assay.planning.request import PlanRequest, plan_progress, requested
from assay_rm_training.commands.train.placement import Placement, placement_options, run_placed
from assay_rm_training.presets import PRESETS, preset
from assay_rm_training.training_config import LoraConfig, TrainingConfig

if TYPE_CHECKING:
    from assay.workspace import Workspace
    from assay_rm_training.methods.method import Method
    from assay_rm_training.runs.train import TrainedModel, TrainingPlan

ForceOption = Annotated[bool, typer.Option("--force", help="If the name is in use, write NAME-v2, -v3, ...")]
WaiveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--waive-contamination",
        metavar="BENCHMARK=REASON",
        help="Train although the data is not checked against this registered benchmark, or overlaps; repeatable.",
    ),
]


#: Parameters that are the same for every run of a group, or numbered by it.
_OF_GROUP = (
    *("data", "eval_data", "final_data", "name", "force", "resume", "workspace", "as_json", "seed", "metric", "preset"),
    *("holdout_prompts", "holdout_principles", "holdout_seed", *Placement._fields),
)
#: Settings whose options have another form, and those without an option.
_BY_HAND = ("base", "lora", "betas", "preset", "share_prefix", "max_grad_norm", "head_init")


class RunOptions(NamedTuple):
    """Data, base and model as the command line names them, and the settings in `_BY_HAND`."""

    data: str | None
    base: str
    eval_data: str | None
    final_data: str | None
    name: str | None
    force: bool
    lora: LoraConfig | None
    betas: tuple[float, float]
    preset: str | None


def run_options(
    data: Annotated[str | None, typer.Option(help="Snapshot of the workspace, or a file.")] = None,
    base: Annotated[
        str, typer.Option(help="smollm2, tiny, a folder, a hub id, or a reward model of the workspace.")
    ] = "smollm2",
    eval_data: Annotated[str | None, typer.Option(help="Held-out data: snapshot or file.")] = None,
    final_data: Annotated[
        str | None, typer.Option(help="Data of the final evaluation instead of --eval-data, by which steps are chosen.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new model. Default: BASE-DATA.")] = None,
    force: ForceOption = False,
    preset: Annotated[
        str | None,
        typer.Option(help=f"Published settings: {', '.join(PRESETS)}. Explicit options override them."),
    ] = None,
    lora: Annotated[int, typer.Option(help="Rank of low-rank adapters; 0 = train all weights.")] = 0,
    lora_alpha: Annotated[int | None, typer.Option(help="Default: twice the rank.")] = None,
    lora_dropout: Annotated[float, typer.Option(help="Dropout before the adapters.")] = 0.0,
    betas: Annotated[str, typer.Option(help="AdamW's betas, comma separated.")] = "0.9,0.98",
) -> RunOptions:
    """Raises BadInputError for betas that are not two numbers."""
    try:
        first, second = (float(part) for part in betas.split(","))
    except ValueError as error:
        raise BadInputError(f"--betas takes two numbers with a comma, not {betas!r}") from error
    adapters = LoraConfig(lora, lora_alpha or 2 * lora, lora_dropout) if lora else None
    return RunOptions(data, base, eval_data, final_data, name, force, adapters, (first, second), preset)


LAST = "last"  #: as a run to resume
MADE_UP = "made-up rows"  #: of `assay plan` without data
#: The command whose method is named by an option, so that it resumes a run of any method.
GENERIC = "method"


def last_options(
    context: typer.Context,
    waive_contamination: WaiveOption = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN_ID|last",
            help="Resume an interrupted run; only --name, --force, --parallel and waivers may change. last: the newest "
            "of this --name and these settings that left a state, or a new one where there is none.",
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Options that end every command's list; only their signature is used."""


def training_command(command: Callable[..., Method]) -> Callable[..., None]:
    """A typer command with the shared options and those of `TrainingConfig`, and `command`'s own, which build the
    method."""
    parameters = {f: _parameters(f) for f in (run_options, command, sweep_options, placement_options, last_options)}
    settings = option_parameters(TrainingConfig, exclude=_BY_HAND)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        from assay.models.parallelism.distributed import is_follower

        if is_follower():  # another process owns the workspace; this one trains with it
            from assay_rm_training.training.distributed import run_worker

            return run_worker()

        def arguments(function: Callable[..., Any], values: Mapping[str, Any] = values) -> dict[str, Any]:
            return {p.name: values[p.name] for p in parameters[function]}

        placement, last = placement_options(**arguments(placement_options)), arguments(last_options)
        sweep = sweep_options(**arguments(sweep_options))
        if sweep is None:
            options = run_options(**arguments(run_options))
            _run(options, {p.name: values[p.name] for p in settings}, command, arguments(command), placement, **last)
            return None

        def planned(
            here: Workspace, waivers: dict[str, str], values: Mapping[str, Any], swept: Collection[str]
        ) -> TrainingPlan:
            options, of_method = run_options(**arguments(run_options, values)), arguments(command, values)
            explicit = lambda name: name in swept or is_given(last["context"], name)  # noqa: E731
            of_run = {p.name: values[p.name] for p in settings}
            return _new_plan(here, options, of_run, command, of_method, explicit, waivers)

        return _run_group(sweep, values, planned, placement, **last)

    shared = (run_options, command, sweep_options, placement_options, last_options)
    every = [*parameters[run_options], *settings, *(p for f in shared[1:] for p in parameters[f])]
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
    options: RunOptions,
    settings: dict[str, Any],
    command: Callable[..., Method],
    method_values: dict[str, Any],
    placement: Placement,
    *,
    context: typer.Context,
    waive_contamination: list[str] | None,
    resume: str | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    from assay.runs.record import require_unfinished
    from assay.workspace import Workspace
    from assay_rm_training.runs.train import TrainingPlan, last_interrupted, train_model
    from assay_rm_training.training.resume_state import FILE as STATE

    if (request := requested()) is not None:
        _show_plan(request, options, settings, command, method_values, context, workspace, as_json=as_json)
        return
    here, way = Workspace.find(workspace), command.__name__.replace("_", "-")
    waivers = waivers_of(waive_contamination or [])
    plan: TrainingPlan | None = None
    if resume in (None, LAST):
        explicit = functools.partial(is_given, context)
        plan = _new_plan(here, options, settings, command, method_values, explicit, waivers)
        resume = last_interrupted(here, plan) if resume == LAST else None
    if resume is not None:
        saved = TrainingPlan.read(here, resume)
        require_unfinished(here, resume, in_others=True)
        if way != GENERIC and saved.method.name != way:
            raise BadInputError(f"the run is of assay train {saved.method.name}, not {way}", field="--resume")
        if plan is None:
            refuse_changes(context, _CHANGEABLE)
        name, force = options.name or saved.name, options.force or saved.force
        plan = replace(saved, name=name, force=force, waivers={**saved.waivers, **waivers})
        if is_given(context, "parallel"):
            plan = replace(plan, config=replace(plan.config, parallel=settings["parallel"]))
    assert plan is not None
    often = f"--save-every {plan.config.save_every}"
    placed, asked_name = placement.on != LOCAL, plan.name

    def is_saved(run: Path) -> bool:
        return (run / STATE).is_file() and (not placed or TrainingPlan.read(here, run.name).name == asked_name)

    with resume_hint(here, f"train {way}", is_saved=is_saved, option=often, placed=placed):
        if placed:
            run_placed(here, plan, placement, context)
        rows = plan.method.read(here, plan.data)
        eval_rows = plan.method.read(here, plan.eval_data) if plan.eval_data else None
        final_rows = plan.method.read(here, plan.final_data) if plan.final_data else None
        trained = train_model(here, plan, rows, eval_rows, resume=resume, final_rows=final_rows)
    if as_json:
        emit(_payload(trained), "", as_json=True)
    else:
        _show(trained)


def _show_plan(
    request: PlanRequest,
    options: RunOptions,
    settings: dict[str, Any],
    command: Callable[..., Method],
    method_values: dict[str, Any],
    context: typer.Context,
    workspace: Path | None,
    *,
    as_json: bool,
) -> None:
    from assay.planning.cards import find_card
    from assay.planning.known_plans import keep_plan, rows_of
    from assay.workspace import Workspace
    from assay_rm_training.plan import plan_training
    from assay_rm_training.runs.recorded import snapshot_id

    card, here = find_card(request.card), Workspace.find_optional(workspace)
    with_data = options._replace(data=options.data or MADE_UP)
    plan = _new_plan(here, with_data, settings, command, method_values, functools.partial(is_given, context), {})
    rows = plan.method.read(here, plan.data) if options.data else None
    with plan_progress() as advance:
        estimate = plan_training(plan.method, plan.config, rows, card, request, advance)
    snapshot = snapshot_id(here, plan.data) if here is not None else None
    of_rows = rows_of(plan.data, snapshot) if options.data else MADE_UP
    keep_plan(estimate, plan.config.base, plan.memory_settings, request.ranks, of_rows)
    emit(estimate.to_dict(), str(estimate), as_json=as_json)


def _run_group(
    sweep: SweepOptions,
    values: Mapping[str, Any],
    planned: Callable[[Workspace, dict[str, str], Mapping[str, Any], Collection[str]], TrainingPlan],
    placement: Placement,
    *,
    context: typer.Context,
    waive_contamination: list[str] | None,
    resume: str | None,
    workspace: Path | None,
    as_json: bool,
) -> None:
    from assay.runs.sweep import compare_group, data_content
    from assay.workspace import Workspace
    from assay_rm_training.runs.sweep import LOWER_IS_BETTER, RewardModelGroup
    from assay_rm_training.runs.train import default_name

    if resume is not None:
        raise BadInputError("the same command goes on with what is missing: leave it out", field="--resume")
    here, waivers = Workspace.find(workspace), waivers_of(waive_contamination or [])
    first = planned(here, waivers, values, ())
    _require_comparable(first, placement)
    group = values["name"] or default_name(values["base"], values["data"])
    content = data_content(here, (first.data, first.eval_data, first.final_data))

    def grouped(chosen: Mapping[str, Any], seed: int, name: str) -> TrainingPlan:
        plan = planned(here, waivers, {**values, **chosen, "seed": seed, "name": name}, frozenset(chosen))
        return replace(plan, group=group, data_content=content)

    members = members_of(context, sweep, group, values["seed"], grouped, fixed=_OF_GROUP)
    runs = run_group(here, RewardModelGroup(here, members), members)
    result = compare_group(
        runs,
        prefer=first.config.metric,
        lower=LOWER_IS_BETTER,
        data=first.eval_data or f"what was held out of {Path(first.data).name}",
        final_data=first.final_data,
        other_data="--final-data is for others",
    )
    show_group(result, as_json=as_json)


def _require_comparable(plan: TrainingPlan, placement: Placement) -> None:
    """Raises BadInputError where runs of this plan could not be compared, and for several processes."""
    from assay.models.parallelism.distributed import world_size

    if placement.on != LOCAL or world_size() > 1:
        raise BadInputError("the trainings of a group are of one process each", field="--seeds, --sweep")
    if plan.eval_data is None and not getattr(plan.method, "holds_out", False):
        raise BadInputError("trainings are compared on held-out data: --eval-data", field="--seeds, --sweep")
    if plan.final_data is not None and not plan.config.eval_every:
        reason = "with --final-data settings are chosen by evaluations during training: --eval-every N"
        raise BadInputError(reason, field="--seeds, --sweep")


def _new_plan(
    here: Workspace | None,
    options: RunOptions,
    settings: dict[str, Any],
    command: Callable[..., Method],
    method_values: dict[str, Any],
    explicit: Callable[[str], bool],
    waivers: dict[str, str],
) -> TrainingPlan:
    """`explicit`: whether an option was given, so that it overrides the preset."""
    from assay.runs.record import locate_model
    from assay_rm_training.runs.train import TrainingPlan, default_name

    if options.data is None:
        raise BadInputError("name what to train on: --data SNAPSHOT or --data FILE")
    if options.preset is not None:
        settings = with_preset({**settings, "betas": options.betas}, options.preset, explicit)
        method_values = with_objective(method_values, options.preset, explicit)
    if method_values.get("reference") is not None:
        method_values = method_values | {"reference": locate_model(here, method_values["reference"])[0]}
    settings = {"betas": options.betas, "preset": options.preset, **settings, "track": tuple(settings["track"] or ())}
    return TrainingPlan(
        TrainingConfig(base=locate_model(here, options.base)[0], lora=options.lora, **settings),
        absolute_file(options.data),
        absolute_file(options.eval_data) if options.eval_data else None,
        options.name or default_name(options.base, options.data),
        options.force,
        waivers,
        command(**method_values),
        absolute_file(options.final_data) if options.final_data else None,
    )


def with_preset(settings: dict[str, Any], name: str, is_given: Callable[[str], bool]) -> dict[str, Any]:
    """The settings, with those of the preset where the command line does not give them."""
    return settings | {field: value for field, value in preset(name).settings.items() if not is_given(field)}


def with_objective(values: dict[str, Any], name: str, is_given: Callable[[str], bool]) -> dict[str, Any]:
    """A method's own options, with those of the preset that it has and the command line does not give."""
    published = preset(name).objective
    return values | {option: published[option] for option in values if option in published and not is_given(option)}


#: Options that may differ when a run is resumed.
_CHANGEABLE = frozenset(
    ("resume", "name", "force", "waive_contamination", "parallel", "workspace", "as_json", *Placement._fields)
)


def waivers_of(entries: list[str]) -> dict[str, str]:
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
    from assay_rm_training.commands.evaluation_tables import print_report

    summary = trained.summary
    losses = [row["loss"] for row in read_metrics(trained.folder) if row["kind"] == "train"]
    unit = trained.unit
    computed_in = f"in {trained.metrics['autocast']} on {trained.metrics['device']}"
    if trained.evaluation is not None and trained.evaluation.model.dtype not in ("", trained.metrics["autocast"]):
        computed_in += f", evaluated in {trained.evaluation.model.dtype}"
    speed = f"{summary.items_per_s:.2f} {unit}/s, {summary.tokens_per_s:.0f} tokens/s"
    typer.echo(
        f"{trained.name}: {counted(trained.metrics[unit], unit)}, {counted(summary.steps, 'step')} in "
        f"{summary.seconds:.0f} s ({speed}, "
        f"{100 * summary.padded_share:.0f} % padding), {computed_in}"
    )
    for warning in trained.metrics["warnings"]:
        typer.echo(f"WARNING: {warning}")
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
        print_report(trained.evaluation)
    if seen := trained.metrics["evaluated_seen"]:
        typer.echo(f"note: {seen} of the evaluated rows {'has' if seen == 1 else 'have'} a prompt that was trained on")
    for state in trained.contamination:
        typer.echo(f"contamination: {state}")
    for use in trained.spec.contamination:
        if not (use.use == "training" and use.model == trained.name):
            typer.echo(f"contamination: {use}")
    typer.echo(f"model {trained.path} ({trained.artifact_id}), run {trained.run_id}")


BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], *, width: int = 40) -> str:
    """At most `width` characters, each the mean of its share of the values, scaled from the lowest to the highest."""
    width = min(width, len(values))
    if not width:
        return ""
    edges = [i * len(values) // width for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((mean - low) * scale)] for mean in means)
