"""The interactive pages of the API, /docs (Swagger UI) and /redoc (ReDoc), and all that they load.

A server is often where no other can be reached, so scripts and styles come from the package fastapi-offline, and the
browser is told to ask nobody else. Without that package (in an environment of vLLM's) the rest of the server works and
the pages say what is missing. Leaves out: the description that they show (`openapi`), who may read it (`gate`).
"""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse

DOCS, REDOC, DESCRIPTION = "/docs", "/redoc", "/openapi.json"
_PACKAGE = "fastapi-offline"
_FOLDER = f"{DOCS}/assets"
_TYPES = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "redoc.standalone.js": "text/javascript",
    "favicon.png": "image/png",
}
PATHS = frozenset((DOCS, REDOC, DESCRIPTION, *(f"{_FOLDER}/{name}" for name in _TYPES)))
#: Both pages begin by a script of their own text, and make styles; ReDoc searches in a worker.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src blob:; frame-ancestors 'none'"
)


def mount_pages(app: FastAPI) -> None:
    """Serve both pages. The application must have been made with `docs_url` and `redoc_url` None."""

    def swagger(root: str) -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url=root + DESCRIPTION,
            title=app.title,
            swagger_js_url=f"{root}{_FOLDER}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{_FOLDER}/swagger-ui.css",
            swagger_favicon_url=f"{root}{_FOLDER}/favicon.png",
            swagger_ui_parameters={"validatorUrl": None},  # else a badge of a server elsewhere
        )

    def redoc(root: str) -> HTMLResponse:
        return get_redoc_html(
            openapi_url=root + DESCRIPTION,
            title=app.title,
            redoc_js_url=f"{root}{_FOLDER}/redoc.standalone.js",
            redoc_favicon_url=f"{root}{_FOLDER}/favicon.png",
            with_google_fonts=False,
        )

    assets_package = find_spec(_PACKAGE.replace("-", "_"))
    for path, page in ((DOCS, swagger), (REDOC, redoc)):
        endpoint = _missing if assets_package is None else _showing(page)
        app.add_api_route(path, endpoint, methods=["GET", "HEAD"], include_in_schema=False)
    if assets_package is None or assets_package.origin is None:
        return
    folder = Path(assets_package.origin).parent / "static"
    for name, media_type in _TYPES.items():
        sent = _sending(folder / name, media_type)
        app.add_api_route(f"{_FOLDER}/{name}", sent, methods=["GET", "HEAD"], include_in_schema=False)


async def _missing() -> Response:
    raise HTTPException(404, f"the pages need {_PACKAGE}, which is not installed here; {DESCRIPTION} describes the API")


def _showing(render: Callable[[str], HTMLResponse]) -> Callable[[Request], Awaitable[Response]]:
    async def send_page(request: Request) -> Response:
        response = render(request.scope.get("root_path", "").rstrip("/"))
        response.headers["Content-Security-Policy"] = _POLICY
        return response

    return send_page


def _sending(path: Path, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def send_file() -> Response:
        return FileResponse(path, media_type=media_type)

    return send_file
