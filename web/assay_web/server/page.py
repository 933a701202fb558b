"""The single-page application: its files, compressed by the build, and index.html for every path outside the API.

Leaves out: building it (`web/build_frontend.py`); compressing replies of the API (`assay_web.app`). Without a build the
API still runs and the page replies 503 with what is missing.
"""

import os
import re
from collections.abc import Mapping
from mimetypes import guess_type
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

MISSING = "the page is not built: run `python web/build_frontend.py` in a checkout of Assay; the API is at /docs"
#: The component library sets styles from its script; nothing comes from elsewhere.
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' "
    "data:; connect-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
#: An annotation session's address, and the page that names all files of one (the build's `session.html`).
_SESSION = re.compile(r"annotate/queue/[^/]+(/adjudicate)?")
_BESIDE = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
_IMMUTABLE = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}
#: Content codings in order of preference, and the ending of the copy that the build wrote beside each file.
_COPIES = {"br": ".br", "gzip": ".gz"}


class _Assets(StaticFiles):
    """Files whose names change with their content."""

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        return _file(Path(full_path), Headers(scope=scope), _IMMUTABLE)


def _file(path: Path, request: Headers, headers: Mapping[str, str]) -> Response:
    """The file, or its compressed copy where the request accepts one and the copy is not older; 304 where it is known.
    Each has an ETag of its own (RFC 9110, 8.8.3.3)."""
    sent, coding = path, None
    changed = path.stat().st_mtime
    for name in _accepted(request.get("accept-encoding", "")):
        copy = path.with_name(path.name + _COPIES[name])
        if copy.is_file() and copy.stat().st_mtime >= changed:
            sent, coding = copy, name
            break
    media_type = guess_type(path)[0] or "application/octet-stream"
    response = FileResponse(sent, headers={**headers, "Vary": "Accept-Encoding"}, media_type=media_type)
    response.set_stat_headers(sent.stat())
    if coding is not None:
        response.headers["Content-Encoding"] = coding
    etags = [tag.strip().removeprefix("W/") for tag in request.get("if-none-match", "").split(",")]
    return NotModifiedResponse(response.headers) if response.headers["etag"] in etags else response


def _accepted(header: str) -> list[str]:
    """Of `_COPIES`, those that the Accept-Encoding header names without `q=0`."""
    choices = (choice.replace(" ", "").lower().partition(";q=") for choice in header.split(","))
    accepted = {name for name, _, weight in choices if not weight or weight.strip("0.") != ""}
    return [name for name in _COPIES if name in accepted]


def mount_page(app: FastAPI, folder: Path) -> None:
    """Mount the page; call it after every other route is added."""
    index, session = folder / "index.html", folder / "session.html"
    if index.is_file():
        app.mount("/assets", _Assets(directory=folder / "assets"), name="assets")

    async def page(path: str, request: Request) -> Response:
        if path == "api" or path.startswith("api/"):
            raise HTTPException(404, f"there is no /{path}")
        if not index.is_file():
            return PlainTextResponse(MISSING + "\n", status_code=503)
        if not path.endswith(".html") and (file := _beside(folder, path)) is not None:
            return _file(file, request.headers, _BESIDE)
        page = session if _SESSION.fullmatch(path) and session.is_file() else index
        return _file(page, request.headers, _HEADERS)

    app.add_api_route("/{path:path}", page, methods=["GET", "HEAD"], include_in_schema=False)


def _beside(folder: Path, name: str) -> Path | None:
    """A file of this name in the page's folder."""
    try:
        return folder / name if name and "/" not in name and (folder / name).is_file() else None
    except OSError:  # a name that is too long
        return None
