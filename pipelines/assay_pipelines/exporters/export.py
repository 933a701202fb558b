"""Export: a snapshot or a selection of pools in another trainer's format, complete or not at all."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from assay import ids
from assay.data.snapshots import Selection, get_snapshot
from assay.errors import BadInputError
from assay.runs.record import folder_digest
from assay.store.database import Connection
from assay.system.atomic_files import replacing, replacing_folder
from assay.workspace import Workspace
from assay_pipelines.exporters.conversations import fill_forms
from assay_pipelines.exporters.hugging_face import MARKER
from assay_pipelines.exporters.job import (
    ExportFormat,
    ExportJob,
    Pseudonyms,
    SelectionCounts,
    select_items,
    select_responses,
)
from assay_pipelines.exporters.kind import EXPORTERS
from assay_pipelines.exporters.message_forms import ImageCopies, left_out_notes


@dataclass(frozen=True)
class ExportReport:
    """`rows` written, in `unit`. Of the selected comparisons `pairs` have a chosen side; `undecided` ones (ties and
    unlabelled) have none.
    """

    path: str
    format: str
    rows: int
    unit: str
    pairs: int
    undecided: int
    notes: tuple[str, ...] = ()


def export(
    workspace: Workspace,
    path: Path,
    what: str | Selection,
    *,
    format: str = "auto",
    rationales: bool = False,
    images: bool = True,
    run_id: str | None = None,
) -> ExportReport:
    """Write a snapshot (by name) or a selection to `path`. An existing file is replaced, a folder if an export made it.

    `format` "auto": hf for a folder, label-studio for .json, else trl. `rationales`: write people's free text too.
    `images`: copy images beside the file; otherwise conversations with images are left out.
    Raises BadInputError for an unknown format or ending or nothing to write, NotFoundError for an unknown snapshot.
    """
    path = path.expanduser().resolve()
    name = _format_name(path) if format == "auto" else format
    exporter = EXPORTERS.find(name, folder=Path(), field="format")
    ending = _ending(path, name, exporter)
    snapshot = get_snapshot(workspace, what) if isinstance(what, str) else None
    selection = what if isinstance(what, Selection) else None
    output = replacing(path) if exporter.endings else replacing_folder(path, ours=MARKER)
    with output as temporary, workspace.store.unit() as db:
        db.execute("SET preserve_insertion_order = true")
        counts = select_items(db, snapshot, selection)
        _check(exporter, counts)
        beside = path if exporter.endings else temporary / path.name
        copies = ImageCopies(workspace.media, beside.with_name(f"{path.name.split('.')[0]}-images"))
        form = replace(exporter.form, structs=not ending.startswith(".json"))
        form = form if images else replace(form, holds=form.holds - {"image"})
        select_responses(db, selection if exporter.needs == "responses" else None)
        forms = fill_forms(db, form, copies)
        left_out = _left_out(db, exporter)
        title = snapshot.name if snapshot is not None else path.name
        pseudonyms = Pseudonyms()
        job = ExportJob(
            db, temporary, ending, counts, snapshot, selection, rationales, pseudonyms, run_id, title, forms, copies
        )
        written = exporter.write(job)
    if exporter.complete is not None:
        exporter.complete(path, job)
    undecided = counts.matched - counts.pairs
    notes = (*left_out, *written.notes)
    return ExportReport(str(path), name, written.rows, exporter.unit, counts.pairs, undecided, notes)


def content_hash(path: Path) -> str:
    """Of an exported file or folder, for the record of the run."""
    if path.is_dir():
        return folder_digest(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[: ids.HEX_DIGITS]


def _format_name(path: Path) -> str:
    if path.suffix == ".json":
        return "label-studio"
    return "hf" if path.is_dir() or not path.suffix else "trl"


def _ending(path: Path, name: str, exporter: ExportFormat) -> str:
    """The ending of the file, "" for a folder. Raises BadInputError for one that the format does not have."""
    if not exporter.endings:
        return ""
    ending = next((end for end in sorted(exporter.endings, key=len, reverse=True) if path.name.endswith(end)), None)
    if ending is None:
        raise BadInputError(f"in the format {name} the file must end in {', '.join(exporter.endings)}", file=path)
    return ending


def _check(exporter: ExportFormat, counts: SelectionCounts) -> None:
    if exporter.needs == "pairs" and not counts.pairs:
        raise BadInputError(f"nothing to export: {counts.matched} comparisons match, none of them has a decided label")
    if exporter.needs == "labels" and not counts.pairs + counts.ties:
        raise BadInputError(f"nothing to export: {counts.matched} comparisons match, none of them has a label")
    if exporter.needs == "comparisons" and not counts.matched:
        raise BadInputError("nothing to export: no comparison matches")


def _left_out(db: Connection, exporter: ExportFormat) -> tuple[str, ...]:
    """What the format has no place for, counted by reason. Raises BadInputError where that is all of it."""
    if exporter.needs == "responses":
        return ()
    among = {"pairs": "label IN ('A', 'B')", "labels": "label IS NOT NULL", "comparisons": "true"}[exporter.needs]
    rows = db.execute(
        f"SELECT barred, count(*), min(comparison_id) FROM resolved WHERE {among} GROUP BY 1 ORDER BY 2 DESC, 1"
    ).fetchall()
    notes = left_out_notes(row for row in rows if row[0])
    if len(notes) == len(rows):
        raise BadInputError(f"nothing to export: {'; '.join(notes)}")
    return notes
