"""`assay data import` and `preview`: reading files of pairs, and what they would be read as."""

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import JsonOption, WorkspaceOption, emit
from assay.cli.settings_options import settings_options
from assay.cli.workspace_command import add_commands
from assay.data.conversation import ResponseForm, prompt_columns, response_columns
from assay.errors import BadInputError
from assay.settings import Help
from assay.system.plurals import counted
from assay_pipelines.importers.kind import FAMILIES

if TYPE_CHECKING:
    from assay_pipelines.importers.preview import Readable, SourcePreview
    from assay_pipelines.importers.run import ImportReport
    from assay_pipelines.importers.source import ImportConfig

SHOWN_CHARACTERS = 70


@dataclass(frozen=True)
class SourceOptions:
    """A file and how it is read."""

    path: Annotated[str, Help("A file, a folder, or hf:NAME for what `datasets` can load.", option="FILE")]
    format: Annotated[
        str,
        Help(
            "auto, a container (jsonl, json, csv, parquet, arrow, hf), or a layout that `assay plugins importer` "
            f"lists, or one of the families {', '.join(FAMILIES)}; or module:Name, file.py:Name, file.yaml"
        ),
    ] = "auto"
    map: Annotated[tuple[str, ...], Help("OURS=THEIRS, e.g. prompt=question or prompt=item.question; repeatable.")] = ()
    values: Annotated[tuple[str, ...], Help("Codes of the label, e.g. 1=first,2=second,0=tie; repeatable.")] = ()
    split: Annotated[str | None, Help("Split of a data set, a folder or a JSON file of several. Default: train.")] = (
        None
    )
    subset: Annotated[str | None, Help("Configuration of an hf: data set.")] = None
    encoding: Annotated[str | None, Help("Encoding of a CSV file. Default: detected.")] = None

    def config(self, **options: Any) -> "ImportConfig":
        """`options`: fields of `ImportConfig` beside these. Raises BadInputError."""
        from assay_pipelines.importers.mapping import parse_mapping
        from assay_pipelines.importers.source import ImportConfig

        columns = parse_mapping(list(self.map), list(self.values))
        read: dict[str, Any] = {"split": self.split, "subset": self.subset, "encoding": self.encoding}
        return ImportConfig(
            self.path, self.format, mapping=dict(columns.paths), values=dict(columns.values), **read, **options
        )


def add_to(group: typer.Typer) -> None:
    add_commands(group, import_, preview)


@settings_options(SourceOptions)
def import_(
    file: SourceOptions,
    source: Annotated[
        str | None, typer.Option(help="Name of the source. Default: the rows' own, else the file's.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Read only this many rows.")] = None,
    fetch_images: Annotated[
        bool, typer.Option("--fetch-images", help="Get images whose addresses are of the web.")
    ] = False,
    fetch_from: Annotated[
        list[str] | None,
        typer.Option("--fetch-from", help="A host that may have a private address: fetch from it, too; repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Import a file of which under half can be read, unasked.")] = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import preference pairs. Rows that cannot be imported are recorded with a reason; all others are imported.

    An interrupted import is resumed by running it again; nothing is imported twice.

    Example: `assay data import pairs.csv --map prompt=question --map chosen=good --map rejected=bad`
    """
    from assay.runs.progress_bar import progress_bar
    from assay.workspace import Workspace
    from assay_pipelines.importers.preview import preview as preview_of
    from assay_pipelines.importers.run import open_import, run_import

    here = Workspace.find(workspace)
    config = file.config(source=source, limit=limit, fetch_images=fetch_images, fetch_from=tuple(fetch_from or ()))
    opened = open_import(here, config)
    if not as_json:
        typer.echo(f"{'reading' if opened.layout_given else 'recognised'} {opened.recognised}")
    if not yes:
        _require_consent(preview_of(opened), file.path, interactive=not as_json and is_terminal())
    with progress_bar(f"importing {opened.container.name}", opened.container.size, unit=opened.container.unit) as step:
        report = run_import(here, opened, advance=step)
    stored = report.pairs - report.new.comparisons
    lines = [
        f"{report.rows} rows, {report.pairs} pairs: {report.new.comparisons} new comparisons, {stored} known already; "
        f"{report.new.prompts + report.new_statements.prompts} new prompts, "
        f"{report.new.responses + report.new_statements.responses} responses, {report.new.judgments} judgments",
        *([_statements(report)] if report.statements else []),
        *([f"{report.dialogues} pairs part before the last turn, into several turns"] if report.dialogues else []),
        *(f"  left out {n}: {reason}" for reason, n in report.rejected.items()),
        *([f"  the first of them: {'; '.join(report.first_rejects)}"] if report.first_rejects else []),
        *([f"columns that were not used: {', '.join(report.unused)}"] if report.unused else []),
        *([_images(report)] if report.images or report.unfetched_images else []),
        f"run {report.run_id}",
    ]
    emit(asdict(report), "\n".join(lines), as_json=as_json)


@settings_options(SourceOptions)
def preview(file: SourceOptions, as_json: JsonOption = False) -> None:
    """Show what a file would be read as: the layout, which columns are used, three rows of each kind. Imports nothing.

    Example: `assay data preview pairs.jsonl`
    """
    from assay.store.media import MediaFolder
    from assay_pipelines.importers.preview import preview as preview_of
    from assay_pipelines.importers.source import open_source

    config = file.config()
    with tempfile.TemporaryDirectory() as folder:
        opened = open_source(config, spill=Path(folder), media=MediaFolder(Path(folder) / "media"))
        summary = preview_of(opened)
    examples = {kind: [(row, _line(entry)) for row, entry in rows] for kind, rows in summary.examples.items()}
    payload: dict[str, Any] = {
        "recognised": summary.recognised,
        "rows": summary.rows,
        "readable": summary.readable,
        "columns": asdict(summary.columns),
        "counts": summary.counts,
        "rejected": summary.rejected,
        "examples": {
            kind: [{"row": row, **asdict(entry)} for row, entry in rows] for kind, rows in summary.examples.items()
        },
    }
    columns = summary.columns
    lines = [
        f"{'read as' if opened.layout_given else 'recognised'} {summary.recognised}",
        f"{summary.readable} of the first {summary.rows} rows can be read",
        *(f"  {count} {kind}" for kind, count in summary.counts.items()),
        *(f"  left out {count}: {reason}" for reason, count in summary.rejected.items()),
        f"read: {', '.join(columns.read) or 'nothing'}",
        *([f"kept as metadata: {', '.join(columns.metadata)}"] if columns.metadata else []),
        f"not used: {', '.join(columns.unused) or 'nothing'}",
    ]
    for kind, rows in examples.items():
        lines += [f"{kind}:", *(f"  row {row}: {text}" for row, text in rows)]
    if summary.rejects:
        lines += ["rejected rows:", *(f"  row {row}: {error}" for row, error in summary.rejects)]
    emit(payload, "\n".join(lines), as_json=as_json)


def is_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def _require_consent(summary: "SourcePreview", path: str, *, interactive: bool) -> None:
    """Ask before a file goes in of which under half can be read. Raises BadInputError where nobody can be asked."""
    if not summary.mostly_unreadable:
        return
    reason = next(iter(summary.rejected), "nothing is read of them")
    message = f"only {summary.readable} of the first {summary.rows} rows can be read ({reason})"
    if not interactive:
        way = "--yes imports those, " if summary.readable else ""
        raise BadInputError(f"{message}; {way}`assay data preview` shows why", file=path)
    if not typer.confirm(f"{message}. Import those?"):
        raise typer.Exit(1)


def _images(report: "ImportReport") -> str:
    stored = f"{report.images} new images"
    if not report.unfetched_images:
        return stored
    return f"{stored}; {report.unfetched_images} at addresses of the web were not fetched (--fetch-images)"


def _statements(report: "ImportReport") -> str:
    new = report.new_statements
    kinds = {
        "ratings and labels": new.response_judgments,
        "labels of steps and spans": new.step_judgments,
        "texts of feedback": new.feedback,
        "principle judgments": new.principle_judgments,
    }
    parts = [f"{number} new {name}" for name, number in kinds.items() if number]
    return f"{report.statements} statements about single responses: {', '.join(parts) or 'none of them new'}"


def _line(entry: "Readable") -> str:
    from assay_pipelines.importers.rows import FeedbackRow, PairRow, RatedCompletion, RatedRow

    asked = prompt_columns(entry.turns)[0][-1]  # the text view
    fields = [f"{asked['role']}: {_excerpt(asked['content'])}"]
    if len(entry.turns) > 1:
        fields.insert(0, f"{counted(len(entry.turns) - 1, 'turn')} before")
    if isinstance(entry, PairRow):
        strength = "" if entry.strength is None else f", strength {entry.strength}"
        votes = f", {counted(len(entry.votes), 'vote')}" if entry.votes else ""
        fields += [f"first: {_excerpt(entry.first)}", f"second: {_excerpt(entry.second)}"]
        fields.append(f"label: {entry.label or 'none'}{strength}{votes}")
    elif isinstance(entry, RatedCompletion):
        fields += [f"response: {_excerpt(entry.response)}", f"rating: {entry.value:g}"]
    elif isinstance(entry, FeedbackRow):
        fields += [f"response: {_excerpt(entry.response)}", f"feedback: {_excerpt(entry.content)}"]
    elif isinstance(entry, RatedRow):
        ratings = [f"{rating['aspect']} {rating['value']}" for rating in entry.ratings]
        marks = [f"{len(entry.marks)} marks"] if entry.marks else []
        fields += [f"response: {_excerpt(entry.response)}", ", ".join([*ratings, *marks]) or "no label"]
    else:
        fields += [f"response: {_excerpt(entry.response)}", f"{_excerpt(entry.principle)}: {entry.answer}"]
    return " | ".join(fields)


def _excerpt(response: ResponseForm) -> str:
    line = " ".join(response_columns(response)[0].split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[: SHOWN_CHARACTERS - 1]}…"
