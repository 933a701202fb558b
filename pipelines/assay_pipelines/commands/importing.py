"""`assay data import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay_pipelines.importers.kind import layout_names

if TYPE_CHECKING:
    from assay_pipelines.importers.run import ImportReport


def add_to(group: typer.Typer) -> None:
    """Add the command to the group `data`."""
    group.command("import")(import_)


def import_(
    path: Annotated[str, typer.Argument(metavar="FILE", help="A file, or hf:NAME for what `datasets` can load.")],
    format: Annotated[
        str,
        typer.Option(
            help="auto, a container (jsonl, json, csv, parquet, hf), or a layout: "
            f"{', '.join(layout_names())}; or module:Name, or file.py:Name",
        ),
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
    """Import preference pairs. Rows that cannot be imported are recorded with a reason; all others are imported.

    An interrupted import is resumed by running it again; nothing is imported twice.

    Example: `assay data import pairs.csv --map prompt=question --map chosen=good --map rejected=bad`
    """
    from assay.errors import BadInputError
    from assay.runs.progress_bar import progress_bar
    from assay.workspace import Workspace
    from assay_pipelines.importers.run import open_import, run_import
    from assay_pipelines.importers.source import ImportConfig

    mapping: dict[str, str] = {}
    for entry in map or []:
        ours, equals, theirs = entry.partition("=")
        if not (ours and equals and theirs):
            raise BadInputError(f"--map takes OURS=THEIRS, not {entry!r}")
        mapping[ours.strip()] = theirs.strip()
    here = Workspace.find(workspace)
    config = ImportConfig(path, format, mapping, source, limit, split, subset)
    opened = open_import(here, config)
    if not as_json:
        typer.echo(f"{'reading' if opened.layout_given else 'recognised'} {opened.recognised}")
    with progress_bar(f"importing {opened.container.name}", opened.container.size, unit=opened.container.unit) as step:
        report = run_import(here, opened, advance=step)
    stored = report.pairs - report.new.comparisons
    lines = [
        f"{report.rows} rows, {report.pairs} pairs: {report.new.comparisons} new comparisons, {stored} known already; "
        f"{report.new.prompts} new prompts, {report.new.responses} responses, {report.new.judgments} judgments",
        *([_statements(report)] if report.statements else []),
        *(f"  rejected {n}: {reason}" for reason, n in report.rejected.items()),
        *([f"  the first of them: {'; '.join(report.first_rejects)}"] if report.first_rejects else []),
        f"run {report.run_id}",
    ]
    emit(report.to_dict(), "\n".join(lines), as_json=as_json)


def _statements(report: ImportReport) -> str:
    new = report.new_statements
    parts = [f"{new.feedback} new texts of feedback", f"{new.principle_judgments} new principle judgments"]
    return f"{report.statements} statements about single responses: {', '.join(parts)}"
