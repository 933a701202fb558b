"""`assay data`: the group and its snapshot commands; import, export and hygiene are in other modules."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay_pipelines.commands import contamination, exporting, hygiene, importing, near_duplicates
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of


def register(app: typer.Typer) -> None:
    """Add the group `data`."""
    group = typer.Typer(no_args_is_help=True, help="Import, clean, inspect and export preference data.")
    importing.add_to(group)
    exporting.add_to(group)
    hygiene.add_to(group)
    for command in (snapshot, snapshots):
        group.command(command.__name__)(command)
    near_duplicates.add_to(group)
    contamination.add_to(group)
    app.add_typer(group, name="data")


def snapshot(
    name: Annotated[str, typer.Argument(help="Name of the snapshot.")],
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    holdout: Annotated[float | None, typer.Option(help="Share of groups to keep out, as NAME-holdout.")] = None,
    group_by: Annotated[str, typer.Option(help="What a split must not cut: prompt or category.")] = "prompt",
    seed: Annotated[int, typer.Option(help="Another seed, another split.")] = 0,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fix a selection of labelled comparisons under a name, for training. A snapshot never changes.

    Default pools: gold, silver, recycled and unverified (with the source's own label).

    Example: `assay data snapshot train --pool gold --pool silver --holdout 0.1`
    """
    from assay.data.snapshots import create_snapshot, create_split
    from assay.runs.record import start_run
    from assay.workspace import Workspace

    here = Workspace.find(workspace)
    selection = selection_of(pool, source, category)
    config = {"name": name, **asdict(selection), "holdout": holdout, "group_by": group_by, "seed": seed}
    with start_run(here, "snapshot", config) as run:
        if holdout is None:
            created = [create_snapshot(here, name, selection, run.id)]
        else:
            created = list(
                create_split(
                    here,
                    name,
                    selection,
                    holdout=holdout,
                    by=group_by,  # type: ignore[arg-type]
                    seed=seed,
                    run_id=run.id,
                )
            )
        run.metrics["snapshots"] = [asdict(s) for s in created]
    lines = [
        f"{'made' if s.created else 'unchanged'} {s.name}: {s.items} items ({_pools(s.pools)}), {s.ties} of them ties; "
        f"{s.unlabelled} without a label left out; {s.id}"
        for s in created
    ]
    emit({"run_id": run.id, "snapshots": [asdict(s) for s in created]}, "\n".join(lines), as_json=as_json)


def snapshots(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the snapshots, newest first.

    Example: `assay data snapshots`
    """
    from assay.data.snapshots import list_snapshots
    from assay.workspace import Workspace

    listed = list_snapshots(Workspace.find(workspace))
    lines = [f"{s.name}: {s.items} items ({_pools(s.pools)}), {s.ties} of them ties; {s.id}" for s in listed]
    fields = ("id", "name", "content_hash", "items", "ties", "pools")
    payload = {"snapshots": [{key: getattr(s, key) for key in fields} for s in listed]}
    emit(payload, "\n".join(lines) or "no snapshots yet: assay data snapshot NAME", as_json=as_json)


def _pools(pools: dict[str, int]) -> str:
    return ", ".join(f"{n} {pool}" for pool, n in pools.items())
