"""Where a training's processes run: in this process, in several on this machine, or on nodes of a Ray cluster.

Covers: the options, the same command given to every rank, from what it resumes after a lost node. Leaves out: starting
and watching the ranks (`assay.compute.ranks`), what they do together (`training/distributed.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assay.cli.resume import is_given
from assay.compute.executor import LOCAL, OnOption
from assay.errors import BadInputError, NotFoundError

if TYPE_CHECKING:
    from assay.workspace import Workspace
    from assay_rm_training.runs.train import TrainingPlan


class Placement(NamedTuple):
    """`nproc_per_node`: ranks a node."""

    on: str
    nodes: int
    nproc_per_node: int
    max_restarts: int


def placement_options(
    on: OnOption = LOCAL,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of the Ray cluster of --on.")] = 1,
    nproc_per_node: Annotated[
        int, typer.Option(min=1, help="Processes on each of them, each with a GPU where there are any.")
    ] = 1,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Of --on: times that a lost node or killed process is made up for.")
    ] = 3,
) -> Placement:
    """Raises BadInputError for options that do not go together, and for --on under torchrun."""
    from assay.models.parallelism.distributed import world_size

    kind, _, processes = on.partition(":")
    if kind == LOCAL and nodes > 1:
        raise BadInputError("several nodes are those of a Ray cluster: --on ray:HOST:PORT", field="--nodes")
    if kind == LOCAL and nproc_per_node > 1:
        raise BadInputError(f"processes of this machine are --on local:{nproc_per_node}", field="--nproc-per-node")
    if kind == LOCAL and processes.isdecimal():
        on, nproc_per_node = (on, int(processes)) if int(processes) else (LOCAL, 1)
    if on != LOCAL and world_size() > 1:
        raise BadInputError("torchrun has placed these processes already", field="--on")
    return Placement(on, nodes, nproc_per_node, max_restarts)


def run_placed(here: Workspace, plan: TrainingPlan, placement: Placement, context: typer.Context) -> None:
    """Run the command of `context` where `placement` says, and exit with its status.

    Raises as `run_ranks`; what is wrong with the cluster before any work starts.
    """
    from assay.compute import ranks
    from assay.compute.executor import open_nodes
    from assay.runs.record import mark_interrupted
    from assay_rm_training.runs.train import TrainingPlan
    from assay_rm_training.training.resume_state import FILE as STATE

    earlier = {folder.name for folder in here.runs.glob("*")}
    names = [part.info_name or "" for part in _with_parents(context)]

    def words() -> list[str]:
        """The command itself; after a loss, the one that resumes the run that it had become."""
        lost = []
        for folder in sorted(here.runs.glob("*")):
            try:
                if folder.name not in earlier and TrainingPlan.read(here, folder.name).name == plan.name:
                    lost.append(folder)
            except NotFoundError:  # another kind of run, or one that was lost before its plan was written
                continue
        mark_interrupted(here, [folder.name for folder in lost], "its node or process was lost")
        saved = [folder.name for folder in lost if (folder / STATE).is_file()]
        if saved:
            options = [f"--resume={saved[-1]}", *(["--json"] if context.params["as_json"] else [])]
        else:
            options = _given_options(context)
        return ["-m", "assay.cli", *names, *options, f"--workspace={here.root}"]

    count = placement.nproc_per_node
    gpu = plan.config.device != "cpu"
    hire = partial(open_nodes, placement.on, placement.nodes, ranks.TARGET, folder=here.root, cpus=count, gpu=gpu)
    raise typer.Exit(ranks.run_ranks(hire, words, count=count, max_restarts=placement.max_restarts))


def _with_parents(context: typer.Context) -> list[typer.Context]:
    """From the first command within `assay` to this one."""
    parent = context.parent
    return [] if parent is None else [*_with_parents(parent), context]  # type: ignore[arg-type]  # click's own


def _given_options(context: typer.Context) -> list[str]:
    """The options of the command line (and of environment variables), but for those of its placement."""
    words: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in (*Placement._fields, "workspace") or not is_given(context, name):
            continue
        value = context.params[name]
        for each in value if isinstance(value, list | tuple) else [value]:
            if isinstance(each, bool):
                words.append(parameter.opts[0] if each else parameter.secondary_opts[0])
            else:
                words.append(f"{parameter.opts[0]}={each}")
    return words
