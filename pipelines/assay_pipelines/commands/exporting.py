"""`assay data export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay_pipelines.commands.selection import CategoryFilter, PoolOption, SourceFilter, selection_of
from assay_pipelines.exporters.kind import EXPORTERS

if TYPE_CHECKING:
    from assay.data.snapshots import Selection


def add_to(group: typer.Typer) -> None:
    """Add the command to the group `data`."""
    group.command()(export)


def export(
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
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write decided pairs in the format of other trainers. The file or folder appears complete or not at all.

    A folder gets Parquet files and a data card, for `datasets.load_dataset`. Annotators appear under pseudonyms that
    differ between exports.

    Example: `assay data export train.jsonl --snapshot train`
    """
    from assay.errors import BadInputError
    from assay.runs.progress_bar import progress_bar
    from assay.runs.record import start_run
    from assay.workspace import Workspace
    from assay_pipelines.exporters.export import content_hash
    from assay_pipelines.exporters.export import export as write

    here = Workspace.find(workspace)
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
    with start_run(here, "export", config) as run:
        if snapshot is not None:
            from assay.data.snapshots import get_snapshot

            run.link("input", "snapshot", get_snapshot(here, snapshot).id)
        with progress_bar(f"exporting {path.name}", 1, unit="files") as step:
            report = write(here, path, what, format=format, rationales=rationales, run_id=run.id)
            step(1)
        written = Path(report.path)
        run.link("output", "file", report.path)
        run.add_artifact("export", written.name, written, content_hash=content_hash(written))
        run.metrics.update(asdict(report))
    lines = [f"wrote {report.rows} {report.unit} to {report.path} as {report.format}", *report.notes]
    if report.undecided and report.unit in ("pairs", "prompts"):
        lines.append(f"left out {report.undecided} comparisons without a chosen side: ties and undecided ones")
    text = "\n  ".join(lines)
    emit({"run_id": run.id, **asdict(report)}, text, as_json=as_json)
