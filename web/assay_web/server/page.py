"""The single-page application: its files, and index.html for every path outside the API.

Leaves out: building it (`web/build_frontend.py`). Without a build the API still runs and the page
replies 503 with what is missing.
"""

from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

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


class _Assets(StaticFiles):
    """Files whose names change with their content."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def mount_page(app: FastAPI, folder: Path) -> None:
    """Mount the page; call it after every other route is added."""
    index = folder / "index.html"
    if index.is_file():
        app.mount("/assets", _Assets(directory=folder / "assets"), name="assets")

    async def page(path: str) -> Response:
        if path == "api" or path.startswith("api/"):
            raise HTTPException(404, f"there is no /{path}")
        if not index.is_file():
            return PlainTextResponse(MISSING + "\n", status_code=503)
        if path != "index.html" and (file := _beside(folder, path)) is not None:
            return FileResponse(file, headers={"X-Content-Type-Options": "nosniff"})
        return FileResponse(index, headers=_HEADERS)

    app.add_api_route("/{path:path}", page, methods=["GET", "HEAD"], include_in_schema=False)


def _beside(folder: Path, name: str) -> Path | None:
    """A file of this name in the page's folder."""
    try:
        return folder / name if name and "/" not in name and (folder / name).is_file() else None
    except OSError:  # a name that is too long
        return None
