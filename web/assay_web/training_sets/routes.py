"""Routes of training sets: listing snapshots, details, download in TRL's format.

Creating one is a job (`assay_web.jobs`). A download is complete and already unlinked before its first byte is sent, so
an aborted one leaves nothing behind. Leaves out: selecting and splitting (`assay.data.snapshots`), pairs with images,
other formats and larger snapshots, which are `assay data export`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO
from urllib.parse import quote

from fastapi import APIRouter
from fastapi import Path as InPath
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict

from assay.data.snapshots import Snapshot, get_snapshot, list_snapshots
from assay.errors import BadInputError, NotFoundError
from assay.runs.contamination_gate import contamination_of, require_clean
from assay.workspace import Workspace
from assay_pipelines.exporters.export import export
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Curator, Viewer
from assay_web.accounts.audit_log import record
from assay_web.service import ServiceNow

MOST_ITEMS = 50_000  #: the store is held meanwhile
CHUNK = 1 << 18


@dataclass(frozen=True)
class Download:
    """An open file of `size` bytes and `rows` lines, which `chunks` reads once and closes."""

    name: str
    rows: int
    size: int
    stream: BinaryIO

    @property
    def disposition(self) -> str:
        """The header that names the file; a header is ASCII, a snapshot's name may have any letters (RFC 6266)."""
        quoted = quote(self.name, safe="+")
        return (
            f'attachment; filename="{self.name}"' if quoted == self.name else f"attachment; filename*=UTF-8''{quoted}"
        )

    def chunks(self) -> Iterator[bytes]:
        with self.stream:
            while part := self.stream.read(CHUNK):
                yield part


def download_of(workspace: Workspace, name: str) -> Download:
    """Raises NotFoundError, BadInputError where nothing is decided or there is too much."""
    snapshot = get_snapshot(workspace, name)
    if snapshot.items > MOST_ITEMS:
        raise BadInputError(
            f"{snapshot.name} has {snapshot.items} comparisons, more than the {MOST_ITEMS} that are downloaded from "
            f"the page; in the workspace's folder: assay data export {snapshot.name}.jsonl --snapshot {snapshot.name}"
        )
    with TemporaryDirectory(prefix="assay-download-") as folder:
        path = Path(folder) / f"{snapshot.name}.jsonl"
        report = export(workspace, path, snapshot.name, format="trl", images=False)
        stream = path.open("rb")
    return Download(path.name, report.rows, os.fstat(stream.fileno()).st_size, stream)


router = APIRouter(tags=["training sets"], route_class=AuditedRoute)

SetName = Annotated[str, InPath(max_length=100)]
SHOWN = 50  #: snapshots listed
HOLDOUT = "-holdout"


class HeldOut(BaseModel):
    """The part of the same selection that training does not see."""

    name: str
    items: int


class TrainingSet(BaseModel):
    """A snapshot. `pairs`: its items that are no ties, which is what training reads. `pools`: items by pool. `command`:
    the next one, in the workspace's folder. `downloadable`: small enough to be downloaded from the page."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    content_hash: str
    items: int
    pairs: int
    ties: int
    pools: dict[str, int]
    held_out: HeldOut | None
    command: str
    downloadable: bool


class CheckedSet(BaseModel):
    """`contamination`: a line a registered benchmark. `stops_training`: what training would be refused with, and the
    way out."""

    made: TrainingSet
    contamination: list[str]
    stops_training: str | None


class TrainingSets(BaseModel):
    """The newest first; a held-out part stands with its set."""

    sets: list[TrainingSet]


@router.get("/api/training-sets")
def list_training_sets(person: Viewer, service: ServiceNow) -> TrainingSets:
    """The newest snapshots."""
    snapshots = {one.name: one for one in list_snapshots(service.workspace, newest=SHOWN)}
    parts = {name + HOLDOUT for name in snapshots}
    complete = [one for one in snapshots.values() if one.name not in parts]
    return TrainingSets(sets=[_reply(one, snapshots.get(one.name + HOLDOUT)) for one in complete])


@router.get("/api/training-sets/{name}")
def get_training_set(person: Viewer, service: ServiceNow, name: SetName) -> CheckedSet:
    """One, and whether it can be trained on as it is."""
    snapshot = get_snapshot(service.workspace, name)
    states = contamination_of(service.workspace, snapshot.id)
    try:
        require_clean(states, {}, data=snapshot.name, snapshot=True)
        stops = None
    except BadInputError as error:
        stops = str(error)
    held_out = _holdout(service.workspace, snapshot.name)
    return CheckedSet(made=_reply(snapshot, held_out), contamination=[str(one) for one in states], stops_training=stops)


@router.get(
    "/api/training-sets/{name}/pairs.jsonl",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}, "description": "TRL's prompt, chosen and rejected"}},
)
def download_training_set(person: Curator, service: ServiceNow, name: SetName) -> StreamingResponse:
    """Its decided pairs, a line each. 422 for one that is too large for it, with the command that writes it."""
    download = download_of(service.workspace, name)
    record(service.access, person.name, "download_training_set", name, detail={"pairs": download.rows})
    headers = {"Content-Disposition": download.disposition, "Content-Length": str(download.size)}
    return StreamingResponse(download.chunks(), media_type="application/x-ndjson", headers=headers)


def _holdout(workspace: Workspace, name: str) -> Snapshot | None:
    try:
        return get_snapshot(workspace, name + HOLDOUT)
    except NotFoundError:
        return None


def _reply(snapshot: Snapshot, held_out: Snapshot | None) -> TrainingSet:
    command = f"assay train bt --data {snapshot.name}"
    return TrainingSet(
        id=snapshot.id,
        name=snapshot.name,
        content_hash=snapshot.content_hash,
        items=snapshot.items,
        pairs=snapshot.items - snapshot.ties,
        ties=snapshot.ties,
        pools=snapshot.pools,
        held_out=None if held_out is None else HeldOut(name=held_out.name, items=held_out.items),
        command=command if held_out is None else f"{command} --eval-data {held_out.name}",
        downloadable=snapshot.items <= MOST_ITEMS,
    )
