"""Routes of images, by the hash of their bytes: of records, and of the item before an annotator.

The type that is said is that of the file's ending, of a short list without SVG; the bytes were read as such an image
when they were stored, and browsers are told not to guess. Leaves out: who may load what (`assay_web.access`).
"""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import FileResponse

from assay.errors import NotFoundError
from assay.store.media import media_type_of
from assay_web.access.audited_route import AuditedRoute
from assay_web.access.guard import Annotator, Viewer
from assay_web.access.queue_access import QueueName, require_image
from assay_web.service import ServiceNow, WebService

router = APIRouter(tags=["media"], route_class=AuditedRoute)

#: Opened by itself an image is no page of ours, and no other site may show it.
_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "Cross-Origin-Resource-Policy": "same-origin"}
ContentHash = Annotated[str, Path(max_length=100)]


@router.get("/api/media/{content_hash}", response_class=FileResponse)
def get_image(content_hash: ContentHash, person: Viewer, service: ServiceNow) -> FileResponse:
    """An image of the workspace."""
    return _image(service, content_hash)


@router.get("/api/annotate/queues/{queue}/items/{ticket}/media/{content_hash}", response_class=FileResponse)
def get_image_of_item(
    queue: QueueName,
    ticket: Annotated[str, Path(max_length=60)],
    content_hash: ContentHash,
    person: Annotator,
    service: ServiceNow,
) -> FileResponse:
    """An image of an item that the person has before them, or has answered."""
    require_image(service, person, queue, ticket, content_hash)
    return _image(service, content_hash)


def _image(service: WebService, content_hash: str) -> FileResponse:
    file = service.workspace.media.find(content_hash)
    media_type = None if file is None else media_type_of(file)
    if file is None or media_type is None:
        raise NotFoundError(f"the workspace holds no image {content_hash!r}")
    return FileResponse(file, media_type=media_type, headers=_HEADERS)
