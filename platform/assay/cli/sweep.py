"""`--seeds` and `--sweep` of commands that train: the trainings that they ask for, and the table that compares them.

Leaves out: training and comparing (`assay.runs.sweep`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from assay.cli.options import emit, plain_message
from assay.errors import BackendError, BadInputError, nearest_names
from assay.system.plurals import counted

if TYPE_CHECKING:
    from assay.runs.sweep import GroupMember, GroupPlan, GroupResult, GroupRun, GroupTraining, SeedMean
    from assay.workspace import Workspace

    P = TypeVar("P", bound=GroupPlan)

MOST_RUNS = 100


class SweepOptions(NamedTuple):
    """`seeds`: how many; None: one."""

    seeds: int | None
    sweep: list[str]


SeedsOption = Annotated[
    int | None, typer.Option(metavar="N", help="Train with N seeds, from --seed on, and compare on held-out data.")
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OPTION=A,B", help="Train with each of these values of an option; repeatable: all combinations."
    ),
]


def sweep_options(seeds: SeedsOption = None, sweep: SweepOption = None) -> SweepOptions | None:
    """None: one training. Raises BadInputError for less than one seed."""
    if seeds is None and not sweep:
        return None
    if seeds is not None and seeds < 1:
        raise BadInputError(f"at least 1, not {seeds}", field="--seeds")
    return SweepOptions(seeds, sweep or [])


def members_of(
    context: typer.Context,
    options: SweepOptions,
    group: str,
    first_seed: int,
    planned: Callable[[Mapping[str, Any], int, str], P],
    *,
    fixed: Collection[str],
    keys: bool = False,
) -> list[GroupMember[P]]:
    """The trainings, in the order of the values, seeds innermost. `planned`: the plan of the chosen values by
    parameter, a seed and a name. `fixed`: parameters that all of a group share; `keys`: a name with a dot is a key of
    a recipe, whose values stay text.

    Raises BadInputError for an option that is unknown or has no values, and for over MOST_RUNS trainings.
    """
    from assay.runs.sweep import GroupMember

    swept = dict(_values(context, entry, fixed, keys=keys) for entry in options.sweep)
    if len(swept) < len(options.sweep):
        raise BadInputError("an option is swept twice: give all its values at once", field="--sweep")
    seeds = range(first_seed, first_seed + (options.seeds or 1))
    settings = prod(len(each) for each in swept.values())
    if settings * len(seeds) > MOST_RUNS:
        text = f"{counted(settings, 'combination')} of settings with {counted(len(seeds), 'seed')}"
        raise BadInputError(f"{text} are {settings * len(seeds)} trainings, over {MOST_RUNS}", field="--sweep, --seeds")
    members = []
    for combination in product(*swept.values()):
        chosen = dict(zip(swept, combination, strict=True))
        texts = {name.replace("_", "-"): _text(value) for name, value in chosen.items()}
        name = "-".join([group, *(re.sub(r"[^\w.+-]+", "-", f"{key}{_short(texts[key])}") for key in texts)])
        members += [GroupMember(texts, seed, planned(chosen, seed, f"{name}-s{seed}")) for seed in seeds]
    names = [member.plan.name for member in members]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise BadInputError(f"two of the values would have the name {twice}", field="--sweep")
    return members


def run_group(here: Workspace, training: GroupTraining[P], members: list[GroupMember[P]]) -> list[GroupRun]:
    """Train what is due, a line on standard error before each training."""
    from assay.runs.sweep import train_group

    def announce(member: GroupMember[P], number: int, of: int) -> None:
        done = f" ({len(members) - of} of {len(members)} done before)" if number == 1 and of < len(members) else ""
        typer.echo(f"training {number} of {of}: {member.label}{done}", err=True)

    try:
        return train_group(here, training, members, announce=announce)
    except KeyboardInterrupt:
        typer.echo("the same command goes on with what is missing", err=True)
        raise


def show_group(result: GroupResult, *, as_json: bool) -> None:
    """The table, the rule, the best, and what failed. Raises BackendError where trainings failed."""
    runs = [run for one in result.settings for run in one.runs]
    if as_json:
        emit(result.to_dict(), "", as_json=True)
    else:
        _print_group(result, runs)
    if failed := sum(run.error is not None for run in runs):
        raise BackendError(f"{failed} of {len(runs)} trainings failed; the same command tries them again")


def _print_group(result: GroupResult, runs: list[GroupRun]) -> None:
    from rich.console import Console
    from rich.table import Table

    sets = [False, True] if result.final_data else [False]
    names = list(dict.fromkeys(name for one in result.settings for final in sets for name in one.figures(final=final)))
    table = Table(title=f"{result.group}: means over seeds, 95 % of Student's t", title_justify="left")
    for column in [*(list(result.settings[0].settings) or ["settings"]), "seeds", *["on"][: len(sets) - 1], *names]:
        table.add_column(column, overflow="fold")
    for one in result.settings:
        for final in sets:
            figures, data = one.figures(final=final), result.final_data if final else result.data
            cells = [*(one.settings.values() or ["as given"]), f"{len(one.done)}/{len(one.runs)}"]
            cells += [Path(str(data)).name] * (len(sets) - 1) + [_mean(figures.get(name)) for name in names]
            table.add_row(*cells, style="bold" if one is result.best else None)
    console = Console()
    console.width = max(console.width, console.measure(table, options=console.options.update(width=999)).minimum)
    console.print(table)
    typer.echo("intervals are of the seeds alone, on the same held-out items")
    if result.metric is None or result.best is not None:
        typer.echo(f"rule: {result.rule}")
    if result.best is not None and result.second is not None:
        best, second = (" ".join(f"{k} {v}" for k, v in one.settings.items()) for one in (result.best, result.second))
        ahead = f"; {result.metric} less that of {second}: {_mean(result.ahead, '+.4f')}" if result.ahead else ""
        within = result.ahead.interval if result.ahead else None
        unclear = within is None or within.low <= 0 <= within.high
        seeds = "one seed does" if len(result.best.done) == 1 else "these seeds do"
        typer.echo(f"best: {best}{ahead}{f'; {seeds} not tell them apart' * unclear}")
    for warning, count in Counter(warning for run in runs for warning in run.warnings).items():
        typer.echo(f"WARNING: {warning} ({counted(count, 'run')})")
    for run in runs:
        if run.error is not None:
            typer.echo(f"FAILED {run.member.label}: {run.error}")
    typer.echo(f"runs: assay runs --group {result.group}")


def _values(context: typer.Context, entry: str, fixed: Collection[str], *, keys: bool) -> tuple[str, list[Any]]:
    """The parameter that `OPTION=A,B` names, and its values as the command line would read them."""
    options = {
        word.removeprefix("--"): parameter
        for parameter in context.command.params
        for word in [*parameter.opts, *parameter.secondary_opts]
        if word.startswith("--") and not parameter.multiple
    }
    name, _, text = entry.partition("=")
    parameter = options.get(name.strip().removeprefix("--").replace("_", "-"))
    of_recipe = keys and "." in name
    reserved = (*fixed, *SweepOptions._fields)
    if not of_recipe and (parameter is None or parameter.name in reserved):
        names = [n for n, p in options.items() if p.name not in reserved]
        hint = nearest_names(name, names) or ("; seeds are --seeds N" if name == "seed" else "")
        raise BadInputError(f"{name!r} is no option that can be swept{hint}", field="--sweep")
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise BadInputError(f"no values: {name}=A,B", field="--sweep")
    try:
        values = words if parameter is None else [parameter.process_value(context, word) for word in words]
    except typer.BadParameter as error:
        raise BadInputError(f"{name}: {plain_message(error)}", field="--sweep") from error
    if len(set(map(str, values))) < len(values):
        raise BadInputError(f"{name} has a value twice", field="--sweep")
    return name.strip() if parameter is None else str(parameter.name), values


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _short(text: str) -> str:
    """A path by its last part."""
    return Path(text).name


def _mean(mean: SeedMean | None, form: str = ".4f") -> str:
    if mean is None:
        return "-"
    if mean.interval is None:
        return f"{mean.mean:{form}}"
    return f"{mean.mean:{form}} ({mean.interval.low:{form}} to {mean.interval.high:{form}})"
