"""`assay data`: the group; export, snapshots and vectors. Import, hygiene and contamination are in other modules."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.workspace_command import CommandResult, add_commands
from assay.errors import BadInputError
from assay.runs.progress_bar import progress_bar
from assay.runs.record import start_run
from assay.workspace import Workspace
from assay_pipelines.commands import contamination, hygiene, importing
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of
from assay_pipelines.exporters.kind import EXPORTERS

if TYPE_CHECKING:
    from assay.data.snapshots import Selection


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Import, clean, inspect and export preference data.")
    importing.add_to(group)
    add_commands(group, export)
    hygiene.add_to(group)
    add_commands(group, snapshot, snapshots, embed)
    contamination.add_to(group)
    app.add_typer(group, name="data")


def snapshot(
    workspace: Workspace,
    name: Annotated[str, typer.Argument(help="Name of the snapshot.")],
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    holdout: Annotated[float | None, typer.Option(help="Share of groups to keep out, as NAME-holdout.")] = None,
    group_by: Annotated[str, typer.Option(help="What a split must not cut: prompt or category.")] = "prompt",
    seed: Annotated[int, typer.Option(help="Another seed, another split.")] = 0,
) -> CommandResult:
    """Fix a selection of labelled comparisons under a name, for training. A snapshot never changes.

    Default pools: gold, silver, recycled and unverified (with the source's own label).

    Example: `assay data snapshot train --pool gold --pool silver --holdout 0.1`
    """
    from assay.data.snapshots import create_snapshot, create_split

    selection = selection_of(pool, source, category)
    config = {"name": name, **asdict(selection), "holdout": holdout, "group_by": group_by, "seed": seed}
    with start_run(workspace, "snapshot", config) as run:
        if holdout is None:
            created = [create_snapshot(workspace, name, selection, run.id)]
        else:
            created = list(
                create_split(
                    workspace,
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
    return CommandResult({"run_id": run.id, "snapshots": [asdict(s) for s in created]}, "\n".join(lines))


def embed(
    workspace: Workspace,
    encoder: Annotated[str, typer.Option(help="minilm, hashing, or a sentence-transformers model.")] = "minilm",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
) -> CommandResult:
    """Make the vectors of comparisons that lack one, by which the page finds similar ones. Interrupted: run it again.

    Default pools: gold, silver, recycled and unverified.

    Example: `assay data embed --encoder hashing`
    """
    from assay_pipelines.embedding.encoder_loader import open_encoder
    from assay_pipelines.embedding.stored import embed_comparisons

    selection = selection_of(pool, source, category)
    opened = open_encoder(encoder, device)
    with (
        start_run(workspace, "embed", {"encoder": opened.name, **asdict(selection)}) as run,
        progress_bar("embedding", unit="comparison") as advance,
    ):
        report = embed_comparisons(
            workspace, opened, selection, run.id, advance=advance, reference=encoder, device=device
        )
        run.metrics.update(asdict(report))
    return CommandResult(
        {"run": run.id, **asdict(report)},
        f"{report.embedded} comparisons embedded by {report.space}, {report.stored_before} had a vector",
    )


def snapshots(workspace: Workspace) -> CommandResult:
    """List the snapshots, newest first.

    Example: `assay data snapshots`
    """
    from assay.data.snapshots import list_snapshots

    listed = list_snapshots(workspace)
    lines = [f"{s.name}: {s.items} items ({_pools(s.pools)}), {s.ties} of them ties; {s.id}" for s in listed]
    fields = ("id", "name", "content_hash", "items", "ties", "pools")
    payload = {"snapshots": [{key: getattr(s, key) for key in fields} for s in listed]}
    return CommandResult(payload, "\n".join(lines) or "no snapshots yet: assay data snapshot NAME")


def _pools(pools: dict[str, int]) -> str:
    return ", ".join(f"{n} {pool}" for pool, n in pools.items())


def export(
    workspace: Workspace,
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE_OR_FOLDER", help="Ends in .jsonl, .jsonl.gz, .parquet or .json; a folder for hf."),
    ],
    format: Annotated[
        str,
        typer.Option(
            help=f"{EXPORTERS.help()}. auto: hf for a folder, label-studio for .json, else trl; helpsteer3 writes "
            "principle judgments."
        ),
    ] = "auto",
    snapshot: Annotated[str | None, typer.Option(help="Snapshot to write. Default: what the options select.")] = None,
    pool: PoolOption = None,
    source: SourceFilter = None,
    category: CategoryFilter = None,
    rationales: Annotated[
        bool, typer.Option("--rationales", help="Write people's reasons too: free text that may name people.")
    ] = False,
) -> CommandResult:
    """Write decided pairs in the format of other trainers. The file or folder appears complete or not at all.

    A folder gets Parquet files and a data card, for `datasets.load_dataset`. Annotators appear under pseudonyms that
    differ between exports.

    Example: `assay data export train.jsonl --snapshot train`
    """
    from assay_pipelines.exporters.export import content_hash
    from assay_pipelines.exporters.export import export as write

    if snapshot is not None and (pool or source or category):
        raise BadInputError("--snapshot is a selection already: drop --pool, --source and --category")
    what: str | Selection = snapshot if snapshot is not None else selection_of(pool, source, category)
    config: dict[str, object] = {
        "path": str(path),
        "format": format,
        "snapshot": snapshot,
        "pool": pool,
        "source": source,
    }
    config |= {"category": category, "rationales": rationales}
    with start_run(workspace, "export", config) as run:
        if snapshot is not None:
            from assay.data.snapshots import get_snapshot

            run.link("input", "snapshot", get_snapshot(workspace, snapshot).id)
        with progress_bar(f"exporting {path.name}", 1, unit="files") as step:
            report = write(workspace, path, what, format=format, rationales=rationales, run_id=run.id)
            step(1)
        written = Path(report.path)
        run.link("output", "file", report.path)
        run.add_artifact("export", written.name, written, content_hash=content_hash(written))
        run.metrics.update(asdict(report))
    lines = [f"wrote {report.rows} {report.unit} to {report.path} as {report.format}", *report.notes]
    if report.undecided and report.unit in ("pairs", "prompts"):
        lines.append(f"left out {report.undecided} comparisons without a chosen side: ties and undecided ones")
    text = "\n  ".join(lines)
    return CommandResult({"run_id": run.id, **asdict(report)}, text)
