"""Export: a snapshot or a selection of pools as a file or folder in another trainer's form, whole or not at all.

Covers: the table of formats, choosing one, one unit of work around the writer. Written by DuckDB in bounded memory;
the store is held meanwhile. Leaves out: loading pairs into Python (`assay.data.snapshots`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay import ids
from assay.data.snapshots import Selection, get_snapshot
from assay.errors import BadInputError
from assay.runs.record import folder_digest
from assay.system.atomic_files import replacing, replacing_folder
from assay.workspace import Workspace
from assay_pipelines.exporters import helpsteer3, hugging_face, label_studio, nemo_rl, openrlhf, trl, verl
from assay_pipelines.exporters.job import Counts, ExportJob, Written, select_items
from assay_pipelines.exporters.pseudonyms import Pseudonyms

LINES = (".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True)
class ExportFormat:
    """`endings` of the file; none: a folder. `unit`: what a row is. `needs`: what there must be at least one of."""

    name: str
    endings: tuple[str, ...]
    write: Callable[[ExportJob], Written]
    unit: str = "pairs"
    needs: Literal["pairs", "labels", "comparisons", "nothing"] = "pairs"


FORMATS: dict[str, ExportFormat] = {
    made.name: made
    for made in (
        ExportFormat("trl", LINES, trl.write_explicit),
        ExportFormat("trl-implicit", LINES, trl.write_implicit),
        ExportFormat("openrlhf", LINES, openrlhf.write_openrlhf),
        ExportFormat("nemo-rl", LINES, nemo_rl.write_nemo_rl),
        ExportFormat("verl", (".parquet",), verl.write_verl, unit="prompts"),
        ExportFormat("hf", (), hugging_face.write_folder),
        ExportFormat("helpsteer3", LINES, helpsteer3.write_principles, "principle judgments", "nothing"),
        ExportFormat("helpsteer3-preference", LINES, helpsteer3.write_preferences, "preferences", "labels"),
        ExportFormat("label-studio", (".json",), label_studio.write_label_studio, "tasks", "comparisons"),
    )
}


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
    run_id: str | None = None,
) -> ExportReport:
    """Write a snapshot (by name) or a selection to `path`. An existing file is replaced, a folder if an export made it.

    `format` "auto": hf for a folder, label-studio for .json, else trl. `rationales`: write people's free text too.
    Raises BadInputError for an unknown format or ending or nothing to write, NotFoundError for an unknown snapshot.
    """
    path = path.expanduser().resolve()
    chosen, ending = _format(path, format)
    snapshot = get_snapshot(workspace, what) if isinstance(what, str) else None
    selection = what if isinstance(what, Selection) else None
    output = replacing(path) if chosen.endings else replacing_folder(path, ours=hugging_face.MARKER)
    with output as temporary, workspace.store.unit() as db:
        db.execute("SET preserve_insertion_order = true")
        counts = select_items(db, snapshot, selection)
        _check(chosen, counts)
        title = snapshot.name if snapshot is not None else path.name
        pseudonyms = Pseudonyms()
        job = ExportJob(db, temporary, ending, counts, snapshot, selection, rationales, pseudonyms, run_id, title)
        written = chosen.write(job)
    undecided = counts.matched - counts.pairs
    return ExportReport(str(path), chosen.name, written.rows, chosen.unit, counts.pairs, undecided, written.notes)


def content_hash(path: Path) -> str:
    """Of an exported file or folder, for the record of the run."""
    if path.is_dir():
        return folder_digest(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[: ids.HEX_DIGITS]


def _format(path: Path, name: str) -> tuple[ExportFormat, str]:
    if name == "auto":
        name = "label-studio" if path.suffix == ".json" else "hf" if path.is_dir() or not path.suffix else "trl"
    if name not in FORMATS:
        raise BadInputError(f"unknown format {name!r}; one of auto, {', '.join(FORMATS)}", field="format")
    chosen = FORMATS[name]
    if not chosen.endings:
        return chosen, ""
    ending = next((end for end in sorted(chosen.endings, key=len, reverse=True) if path.name.endswith(end)), None)
    if ending is None:
        raise BadInputError(f"in the format {name} the file must end in {', '.join(chosen.endings)}", file=path)
    return chosen, ending


def _check(chosen: ExportFormat, counts: Counts) -> None:
    if chosen.needs == "pairs" and not counts.pairs:
        raise BadInputError(f"nothing to export: {counts.matched} comparisons match, none of them has a decided label")
    if chosen.needs == "labels" and not counts.pairs + counts.ties:
        raise BadInputError(f"nothing to export: {counts.matched} comparisons match, none of them has a label")
    if chosen.needs == "comparisons" and not counts.matched:
        raise BadInputError("nothing to export: no comparison matches")
