"""Routes of files before their import: which there are, and what one would be read as. Importing is a job.

Layouts are named, not given as code. The first rows are read by the importers themselves, in bounded memory. Leaves
out: uploads (`routes`), which places may be read (`places`).
"""

import tempfile
import threading
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator, Field

from assay.data.conversation import prompt_columns, response_columns
from assay.errors import BadInputError, BusyError
from assay.store.media import MediaFolder
from assay_pipelines.importers.kind import layout_names
from assay_pipelines.importers.mapping import TARGETS
from assay_pipelines.importers.preview import KINDS, ColumnUse, Readable, SourceLook, SourcePreview, look
from assay_pipelines.importers.rows import FeedbackRow, PairRow, RatedCompletion, RatedRow
from assay_pipelines.importers.source import CONTAINERS, ImportConfig
from assay_web.access.audited_route import AuditedRoute, Unaudited
from assay_web.access.guard import Curator
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow
from assay_web.uploads.places import HUB, importable, server_files

router = APIRouter(tags=["uploads"], route_class=AuditedRoute)

TEXT_CHARACTERS = 4_000  #: shown of a message
_READING = threading.BoundedSemaphore(2)  #: files at once: each may take a few hundred MB
_UNKNOWN = ColumnUse((), (), ())
Text = Annotated[
    str, BeforeValidator(lambda text: text.encode("utf-8", "replace").decode())
]  #: without halves of characters
Column = Annotated[str, Field(min_length=1, max_length=300)]
Option = Annotated[str, Field(max_length=200)]


class ImportChoices(BaseModel):
    """`files`: on the server, beside uploads. `layouts`: names for `format`; `targets`: ours of a mapping."""

    files: list[str]
    layouts: list[str]
    containers: list[str]
    targets: list[str]


class ImportFile(RequestBody):
    """`file`: `uploads/NAME`, another file of the server, or `hf:NAME`. `mapping`: our column -> theirs; `values`:
    codes of the label -> labels."""

    file: Annotated[str, Field(min_length=1, max_length=1_000)]
    format: Option = "auto"
    mapping: Annotated[dict[str, Column], Field(max_length=40)] = Field({})
    values: Annotated[dict[str, Option], Field(max_length=40)] = Field({})
    split: Option | None = None
    subset: Option | None = None
    encoding: Option | None = None


class ShownColumn(BaseModel):
    """`use`: read, metadata (only kept beside the rows), unused, or null where that is not known."""

    name: Text
    examples: list[Text]
    codes: list[Text]
    use: str | None


class ShownText(BaseModel):
    """A message; `cut`: there is more of it."""

    role: str
    content: Text
    cut: bool


class ShownExample(BaseModel):
    """A row as it would be imported. `remarks`: label, ratings and what else is said of the responses, in words."""

    row: int
    kind: str
    prompt: list[ShownText]
    responses: list[ShownText]
    label: str | None
    remarks: list[Text]


class ShownReject(BaseModel):
    """A row that would be refused."""

    row: int
    field: Text | None
    reason: str


class ImportPreview(BaseModel):
    """`rows`: that were looked at, the first ones. `recognised`: null where nothing says what the columns mean; then
    the counts are empty. `rejected`: reason -> rows. `mostly_unreadable`: importing it takes consent."""

    container: str
    recognised: str | None
    rows: int
    readable: int
    counts: dict[str, int]
    columns: list[ShownColumn]
    examples: list[ShownExample]
    rejected: dict[Text, int]
    rejects: list[ShownReject]
    mappable: bool
    mostly_unreadable: bool


@router.get("/api/imports/choices")
def get_import_choices(person: Curator, service: ServiceNow) -> ImportChoices:
    """What the form of an import offers."""
    return ImportChoices(
        files=server_files(service.workspace, service.settings),
        layouts=layout_names(),
        containers=[name for name in CONTAINERS if name not in ("auto", "hf")],
        targets=sorted(TARGETS),
    )


@router.post("/api/imports/preview")
def preview_import(person: Curator, service: ServiceNow, body: ImportFile, unaudited: Unaudited) -> ImportPreview:
    """What a file would be read as: its layout, its first rows, which would be refused and why. Imports nothing."""
    stored = importable(service.workspace, service.settings, body.file)
    if body.format not in (*CONTAINERS, *layout_names()):
        raise BadInputError("there is no format of that name")
    path = stored if stored.startswith(HUB) else str(service.workspace.root / stored)
    config = ImportConfig(
        path,
        body.format,
        mapping=body.mapping,
        values=body.values,
        split=body.split or None,
        subset=body.subset or None,
        encoding=body.encoding or None,
    )
    if not _READING.acquire(timeout=5):
        raise BusyError("other files are being looked into")
    try:
        with tempfile.TemporaryDirectory() as folder:
            seen = look(config, spill=Path(folder), media=MediaFolder(Path(folder) / "media"))
            return _reply(seen)
    except BadInputError as error:
        message = str(error).removeprefix(path).lstrip(",: ")  # where the server keeps it is nobody's matter
        raise BadInputError(message or str(error)) from error
    finally:
        _READING.release()


def _reply(seen: SourceLook) -> ImportPreview:
    summary = seen.summary or SourcePreview("", seen.rows, 0, _UNKNOWN)
    uses = {name: use for use in ("read", "metadata", "unused") for name in getattr(summary.columns, use)}
    for name in summary.columns.read:  # of an object of which something is read
        uses.setdefault(name.partition(".")[0], "read")
    return ImportPreview(
        container=seen.container,
        recognised=None if seen.summary is None else summary.recognised,
        rows=seen.rows,
        readable=summary.readable,
        counts=summary.counts,
        columns=[
            ShownColumn(
                name=column.name,
                examples=[*column.examples],
                codes=[*column.codes],
                use=uses.get(column.name, "unused") if seen.summary else None,
            )
            for column in seen.columns
        ],
        examples=[_example(row, entry) for entries in summary.examples.values() for row, entry in entries],
        rejected=summary.rejected,
        rejects=[ShownReject(row=row, field=error.field, reason=error.reason) for row, error in summary.rejects],
        mappable=seen.mappable,
        mostly_unreadable=seen.summary is not None and summary.mostly_unreadable,
    )


def _example(row: int, entry: Readable) -> ShownExample:
    prompt = [_text(message["role"], message["content"]) for message in prompt_columns(entry.turns)[0]]
    label, remarks = None, list[str]()
    if isinstance(entry, PairRow):
        responses = [entry.first, entry.second]
        label = entry.label
        remarks += [f"strength {entry.strength}"] if entry.strength is not None else []
        remarks += [f"{len(entry.votes)} votes"] if entry.votes else []
        remarks += [entry.rationale[:TEXT_CHARACTERS]] if entry.rationale else []
    else:
        responses = [entry.response]
        if isinstance(entry, RatedCompletion):
            remarks.append(f"rating {entry.value:g}")
        elif isinstance(entry, FeedbackRow):
            remarks.append(entry.content[:TEXT_CHARACTERS])
        elif isinstance(entry, RatedRow):
            remarks += [f"{rating['aspect']}: {rating['value']}" for rating in entry.ratings]
            remarks += [f"{len(entry.marks)} marks"] if entry.marks else []
        else:
            remarks.append(f"{entry.principle}: {entry.answer}")
    return ShownExample(
        row=row,
        kind=KINDS[type(entry)],
        prompt=prompt,
        responses=[_text("assistant", response_columns(response)[0]) for response in responses],
        label=label,
        remarks=remarks,
    )


def _text(role: str, content: Any) -> ShownText:
    return ShownText(role=role, content=str(content)[:TEXT_CHARACTERS], cut=len(str(content)) > TEXT_CHARACTERS)
