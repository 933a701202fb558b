"""Routes of uploads: what is there and how much room, beginning or going on with one, its pieces, discarding.

The pieces are not read by the gate: they go through to the disk as they arrive, within the limits here. Leaves out:
what a file holds (`preview_routes`).
"""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from assay.errors import ForbiddenError
from assay.http.problems import CLIENT_GONE, ProblemError
from assay_web.access.audited_route import AuditedRoute, note_change
from assay_web.access.guard import Curator
from assay_web.access.permissions import may
from assay_web.accounts.sessions import Person
from assay_web.server.request_body import RequestBody
from assay_web.service import ServiceNow, WebService
from assay_web.uploads.upload_folder import PIECE, Upload, UploadFolder

router = APIRouter(tags=["uploads"], route_class=AuditedRoute)

SILENCE_S = 30.0  #: without a byte, after which a piece is given up
PIECE_S = 600.0  #: within which a piece is here: at 56 kbit/s
BUFFER = 1 << 20
UploadId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


class UploadReply(BaseModel):
    """`offset`: bytes that are safely here. `file`: its name among the uploads, once it is complete."""

    id: str
    name: str
    size: int
    modified: int
    by: str
    offset: int
    file: str | None


class UploadedFileReply(BaseModel):
    """A complete file. `at`: seconds since 1970."""

    name: str
    size: int
    at: float
    by: str | None


class UploadsReply(BaseModel):
    """`room`: bytes that one more file may have; `most_bytes`: that any may have. `piece`: bytes of a piece."""

    files: list[UploadedFileReply]
    unfinished: list[UploadReply]
    room: int
    most_bytes: int
    piece: int


class NewUpload(RequestBody):
    """`modified`: the file's time in milliseconds, by which an interrupted upload is known again. `digest`: SHA-256 of
    the SHA-256 digests of its pieces, in hex: where a file of this content is here, nothing is sent."""

    name: Annotated[str, Field(max_length=1_000)]
    size: Annotated[int, Field(ge=0, lt=2**53)]
    modified: Annotated[int, Field(ge=0, lt=2**53)] = 0
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


@router.get("/api/uploads")
def list_uploads(person: Curator, service: ServiceNow) -> UploadsReply:
    """The files that were uploaded, those on their way, and the room for more."""
    folder = _folder(service)
    return UploadsReply(
        files=[UploadedFileReply.model_validate(file, from_attributes=True) for file in folder.files()],
        unfinished=[_reply(folder, upload) for upload in folder.unfinished()],
        room=folder.room(),
        most_bytes=folder.limits.most_bytes,
        piece=PIECE,
    )


@router.post("/api/uploads")
def begin_upload(person: Curator, service: ServiceNow, body: NewUpload, request: Request) -> UploadReply:
    """Begin an upload, or go on with one's own of the same file at its `offset`. Complete at once where the digest is
    that of a file which is here."""
    folder = _folder(service)
    upload = folder.begin(body.name, body.size, body.modified, body.digest, person.name)
    note_change(request, upload.name, size=upload.size)
    return _reply(folder, upload)


@router.put(
    "/api/uploads/{upload_id}/pieces",
    openapi_extra={
        "requestBody": {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def put_piece(
    upload_id: UploadId,
    offset: Annotated[int, Query(ge=0)],
    person: Curator,
    service: ServiceNow,
    request: Request,
) -> UploadReply:
    """The next piece of an upload, all of it. 409 for another offset than the upload's, which `GET` tells."""
    folder, upload = await run_in_threadpool(_upload_of, service, person, upload_id)
    await _receive(folder, upload, offset, request)
    upload = await run_in_threadpool(folder.get, upload_id)
    request.state.unaudited = upload.file is None  # one line when the file is complete
    note_change(request, upload.file, size=upload.size)
    return await run_in_threadpool(_reply, folder, upload)


@router.get("/api/uploads/{upload_id}")
def get_upload(upload_id: UploadId, person: Curator, service: ServiceNow) -> UploadReply:
    """How far an upload is."""
    return _reply(*_upload_of(service, person, upload_id))


@router.delete("/api/uploads/{upload_id}", status_code=204)
def discard_upload(upload_id: UploadId, person: Curator, service: ServiceNow, request: Request) -> None:
    """Drop an unfinished upload."""
    folder, upload = _upload_of(service, person, upload_id)
    if upload.file is None:
        folder.discard(upload)
    note_change(request, upload.name)


@router.delete("/api/uploads/files/{name}", status_code=204)
def delete_uploaded_file(name: Annotated[str, Path(max_length=300)], person: Curator, service: ServiceNow) -> None:
    """Delete a file. What was imported from it stays."""
    _folder(service).remove(name)


async def _receive(folder: UploadFolder, upload: Upload, offset: int, request: Request) -> None:
    """Raises ProblemError for a piece that stops arriving, of which nothing is kept."""
    opened = folder.piece(upload, offset)
    piece = await run_in_threadpool(opened.__enter__)
    try:
        buffer = bytearray()
        stream = request.stream().__aiter__()
        async with asyncio.timeout(PIECE_S):
            while True:
                chunk = await asyncio.wait_for(anext(stream, None), SILENCE_S)
                if chunk is not None:
                    buffer += chunk
                if buffer and (chunk is None or len(buffer) >= BUFFER):
                    await run_in_threadpool(piece.write, bytes(buffer))
                    buffer.clear()
                if chunk is None:
                    break
    except BaseException as error:
        await run_in_threadpool(opened.__exit__, type(error), error, error.__traceback__)
        if isinstance(error, ClientDisconnect):
            raise ProblemError(CLIENT_GONE, "the connection was cut: the piece is sent again") from None
        if isinstance(error, TimeoutError):
            raise ProblemError(408, "the piece did not arrive in time", headers={"Connection": "close"}) from None
        raise
    await run_in_threadpool(opened.__exit__, None, None, None)


def _folder(service: WebService) -> UploadFolder:
    return UploadFolder(service.workspace.root, service.settings.uploads)


def _upload_of(service: WebService, person: Person, upload_id: str) -> tuple[UploadFolder, Upload]:
    """Raises ForbiddenError for somebody else's, but for administrators."""
    folder = _folder(service)
    upload = folder.get(upload_id)
    if upload.by != person.name and not may(person, "administer"):
        raise ForbiddenError(f"this upload is {upload.by}'s")
    return folder, upload


def _reply(folder: UploadFolder, upload: Upload) -> UploadReply:
    return UploadReply(
        id=upload.id,
        name=upload.name,
        size=upload.size,
        modified=upload.modified,
        by=upload.by,
        offset=folder.offset(upload),
        file=upload.file,
    )
