"""`assay data ...`: import, clean, dedup, stats, export, snapshot."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit

if TYPE_CHECKING:
    from assay.snapshots import Selection

PoolOption = Annotated[list[str] | None, typer.Option("--pool", help="Pool to take; may be given several times.")]
SourceFilter = Annotated[
    list[str] | None, typer.Option("--source", help="Only comparisons of this source; repeatable.")
]
CategoryFilter = Annotated[list[str] | None, typer.Option("--category", help="Only this category; repeatable.")]


def register(app: typer.Typer) -> None:
    """Add the group `data`."""
    group = typer.Typer(no_args_is_help=True, help="Import, clean, inspect and export preference data.")
    group.command("import")(import_)
    for command in (clean, dedup, stats, export, snapshot, snapshots):
        group.command(command.__name__)(command)
    app.add_typer(group, name="data")


def import_(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A file, or hf:NAME for what `datasets` can load.")],
    format: Annotated[
        str, typer.Option(help="auto, hh, trl, normalised, jsonl, csv, parquet or hf.", show_default=True)
    ] = "auto",
    map: Annotated[
        list[str] | None, typer.Option("--map", help="OURS=THEIRS, e.g. prompt=question; repeatable.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Name of the source. Default: the rows' own, else the file's.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Read only this many rows.")] = None,
    split: Annotated[str, typer.Option(help="Split of an hf: data set.")] = "train",
    subset: Annotated[str | None, typer.Option(help="Configuration of an hf: data set.")] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import preference pairs. Rows that cannot be taken are recorded with a reason, the rest is imported.

    Interrupted or run twice: run it again, nothing is doubled.

    Example: `assay data import pairs.csv --map prompt=question --map chosen=good --map rejected=bad`
    """
    from assay.errors import BadInputError
    from assay.progress import progress_bar
    from assay.workspace import Workspace
    from assay_pipelines.importers.formats import ImportConfig
    from assay_pipelines.importing import open_import, run_import

    mapping: dict[str, str] = {}
    for entry in map or []:
        ours, equals, theirs = entry.partition("=")
        if not (ours and equals and theirs):
            raise BadInputError(f"--map takes OURS=THEIRS, not {entry!r}")
        mapping[ours.strip()] = theirs.strip()
    here = Workspace.find(workspace)
    config = ImportConfig(path, format, mapping, source, limit, split, subset)  # type: ignore[arg-type]
    opened = open_import(here, config)
    if not as_json:
        typer.echo(f"recognised {opened.recognised}")
    with progress_bar(f"importing {opened.container.name}", opened.container.size, unit=opened.container.unit) as step:
        report = run_import(here, opened, advance=step)
    known = report.pairs - report.new.comparisons
    lines = [
        f"{report.rows} rows, {report.pairs} pairs: {report.new.comparisons} new comparisons, {known} known already; "
        f"{report.new.prompts} new prompts, {report.new.responses} responses, {report.new.judgments} judgments",
        *(f"  rejected {n}: {reason}" for reason, n in report.rejected.items()),
        *([f"  the first of them: {'; '.join(report.first_rejects)}"] if report.first_rejects else []),
        f"run {report.run_id}",
    ]
    emit(report.to_dict(), "\n".join(lines), as_json=as_json)


def clean(
    max_characters: Annotated[int, typer.Option(help="Discard longer responses; 0 = no limit.")] = 0,
    control_characters: Annotated[bool, typer.Option(help="Discard texts with control characters.")] = True,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Discard comparisons that break structural rules, each with its rule and reason. Nothing is deleted.

    Example: `assay data clean --max-characters 20000`
    """
    from assay.progress import progress_bar
    from assay.runs import start_run
    from assay.workspace import Workspace
    from assay_pipelines.cleaning import CleanConfig
    from assay_pipelines.cleaning import clean as apply_rules

    here = Workspace.find(workspace)
    config = CleanConfig(max_characters, control_characters)
    with (
        start_run(here, "clean", asdict(config)) as run,
        progress_bar("cleaning", len(config.rules()), unit="rules") as step,
    ):
        with here.store.unit() as db:
            discarded = apply_rules(db, config, run.id, advance=step)
        run.metrics["discarded"] = discarded
    text = "\n".join(
        [f"discarded {sum(discarded.values())} comparisons", *(f"  {n}: {rule}" for rule, n in discarded.items() if n)]
    )
    emit({"run_id": run.id, "discarded": discarded}, text, as_json=as_json)


def dedup(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Keep one of each pair that differs only in case or white space; set contradicting source labels aside.

    Example: `assay data dedup`
    """
    from assay.progress import progress_bar
    from assay.runs import start_run
    from assay.workspace import Workspace
    from assay_pipelines.deduplication import dedup as find_duplicates

    here = Workspace.find(workspace)
    with start_run(here, "dedup", {}) as run, progress_bar("deduplicating", 1) as step:
        with here.store.unit() as db:
            counts = find_duplicates(db, run.id)
        step(1)
        run.metrics.update(asdict(counts))
    text = (
        f"{counts.exact_repeats} exact repeats were merged by the imports\n"
        f"discarded {counts.duplicates} duplicates and {counts.contradictions} with contradicting labels"
    )
    emit({"run_id": run.id, **asdict(counts)}, text, as_json=as_json)


def stats(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Counts, label balance, lengths, the longer-is-chosen rate, judgments, decisions and rejects by reason.

    Example: `assay data stats --json | jq .pools`
    """
    from assay.workspace import Workspace
    from assay_pipelines.statistics import statistics

    here = Workspace.find(workspace)
    with here.store.unit() as db:
        found = statistics(db)
    emit({"workspace": str(here.root), **found}, _stats_text(found), as_json=as_json)


def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Ends in .jsonl, .jsonl.gz or .parquet.")],
    snapshot: Annotated[str | None, typer.Option(help="Snapshot to write. Default: what the options select.")] = None,
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write decided pairs as TRL reads them (prompt, chosen, rejected as messages). The file is whole or not there.

    Example: `assay data export train.jsonl --snapshot train`
    """
    from assay.errors import BadInputError
    from assay.runs import start_run
    from assay.workspace import Workspace
    from assay_pipelines.exporting import export as write

    here = Workspace.find(workspace)
    if snapshot is not None and (pool or source or category):
        raise BadInputError("--snapshot is a selection already: drop --pool, --source and --category")
    what: str | Selection = snapshot if snapshot is not None else _selection(pool, source, category)
    config = {"path": str(path), "snapshot": snapshot, "pool": pool, "source": source, "category": category}
    with start_run(here, "export", config) as run:
        if snapshot is not None:
            from assay.snapshots import get_snapshot

            run.link("input", "snapshot", get_snapshot(here, snapshot).id)
        report = write(here, path, what)
        run.link("output", "file", report.path)
        run.metrics.update(asdict(report))
    text = f"wrote {report.pairs} pairs to {report.path}; left out {report.undecided} without a decided label"
    emit({"run_id": run.id, **asdict(report)}, text, as_json=as_json)


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
    from assay.runs import start_run
    from assay.snapshots import create_snapshot, create_split
    from assay.workspace import Workspace

    here = Workspace.find(workspace)
    selection = _selection(pool, source, category)
    config = {"name": name, **asdict(selection), "holdout": holdout, "group_by": group_by, "seed": seed}
    with start_run(here, "snapshot", config) as run:
        if holdout is None:
            made = [create_snapshot(here, name, selection, run.id)]
        else:
            made = list(
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
        run.metrics["snapshots"] = [asdict(s) for s in made]
    lines = [
        f"{'made' if s.created else 'unchanged'} {s.name}: {s.items} items ({_pools(s.pools)}), {s.ties} of them ties; "
        f"{s.unlabelled} without a label left out; {s.id}"
        for s in made
    ]
    emit({"run_id": run.id, "snapshots": [asdict(s) for s in made]}, "\n".join(lines), as_json=as_json)


def snapshots(workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """List the snapshots, newest first.

    Example: `assay data snapshots`
    """
    from assay.snapshots import list_snapshots
    from assay.workspace import Workspace

    found = list_snapshots(Workspace.find(workspace))
    lines = [f"{s.name}: {s.items} items ({_pools(s.pools)}), {s.ties} of them ties; {s.id}" for s in found]
    fields = ("id", "name", "content_hash", "items", "ties", "pools")
    payload = {"snapshots": [{key: getattr(s, key) for key in fields} for s in found]}
    emit(payload, "\n".join(lines) or "no snapshots yet: assay data snapshot NAME", as_json=as_json)


def _selection(pool: list[str] | None, source: list[str] | None, category: list[str] | None) -> Selection:
    from assay.snapshots import Selection

    selection = Selection(sources=tuple(source or ()), categories=tuple(category or ()))
    return replace(selection, pools=tuple(pool)) if pool else selection


def _pools(pools: dict[str, int]) -> str:
    return ", ".join(f"{n} {pool}" for pool, n in pools.items())


def _stats_text(found: dict[str, object]) -> str:
    lines = []
    for title, value in found.items():
        if isinstance(value, dict):
            lines.append(f"{title.replace('_', ' ')}:")
            lines += [f"  {_figure(n):>12}  {key}" for key, n in value.items()] or ["  (none)"]
        else:
            lines.append(f"{title.replace('_', ' ')}: {_figure(value)}")
    return "\n".join(lines)


def _figure(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
