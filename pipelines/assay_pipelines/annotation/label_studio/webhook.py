"""The receiver of Label Studio's webhooks: the FastAPI application, its folding thread, registration on the server.

Label Studio sends an event once and waits a second: one that is lost is found by the next poll.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import threading
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from assay.errors import AssayError, BadInputError, BusyError
from assay.workspace import Workspace
from assay_pipelines.annotation.label_studio.connection import said_clearly
from assay_pipelines.annotation.label_studio.events import (
    ACTIONS,
    EventFoldReport,
    append_event,
    fold_events,
    slim,
    spool_folder,
)
from assay_pipelines.annotation.label_studio.project import Project

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio

log = logging.getLogger(__name__)

SECRET = "ASSAY_LABEL_STUDIO_SECRET"
HEADER = "X-Assay-Secret"
PATH = "/label-studio/webhook"
MAX_BYTES = 64_000_000
RETRY_S = 5.0


def webhook_secret() -> str:
    """From the environment. Raises BadInputError without one: anybody could vote otherwise."""
    secret = os.environ.get(SECRET, "")
    if len(secret) < 16 or not secret.isascii():
        raise BadInputError(f"set ${SECRET} to a secret of at least 16 ASCII characters; Label Studio sends it along")
    return secret


class Folder:
    """Folds waiting events whenever one comes in, in a separate thread. Use as a context manager."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="label-studio-fold", daemon=True)

    def wake(self) -> None:
        self._wake.set()

    def __enter__(self) -> Folder:
        self._wake.set()  # what waits from earlier
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join()
        self._fold()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait()
            self._wake.clear()
            if not self._stop.is_set() and not self._fold():
                self._stop.wait(RETRY_S)
                self._wake.set()

    def _fold(self) -> bool:
        try:
            report = fold_events(self.workspace)
        except BusyError as error:
            log.info("events wait: %s", error)
            return False
        except AssayError as error:
            log.error("events wait: %s", error)
            return False
        _tell(report)
        return True


def create_app(workspace: Workspace, server: str, secret: str, folder: Folder | None = None) -> FastAPI:
    """`server`: the address of the Label Studio server that sends; its projects are this workspace's.

    401 without the secret, 413 for too much, 400 for what is no event, 503 when the disk fails; 200 is a promise.
    """
    app = FastAPI(title="Assay: Label Studio webhook", docs_url=None, redoc_url=None, openapi_url=None)
    spool = spool_folder(workspace)

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post(PATH)
    async def receive(request: Request) -> JSONResponse:
        secret_header = request.headers.get(HEADER, "")
        if not hmac.compare_digest(secret_header.encode(), secret.encode()):
            return JSONResponse({"error": f"header {HEADER} is missing or wrong"}, 401)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BYTES:
                return JSONResponse({"error": f"more than {MAX_BYTES} bytes"}, 413)
        try:
            payload = json.loads(body)
            if not isinstance(payload, dict):
                raise BadInputError("the payload is not a JSON object")
            event = slim(payload)
        except (ValueError, BadInputError) as error:
            return JSONResponse({"error": str(error)}, 400)
        if event is None:
            return JSONResponse({"ignored": str(payload["action"])})
        try:
            await run_in_threadpool(append_event, spool, server, event)
        except AssayError as error:
            log.error("%s", error)
            return JSONResponse({"error": str(error)}, 503)
        if folder is not None:
            folder.wake()
        return JSONResponse({"stored": event["action"]})

    return app


def register_webhook(client: LabelStudio, project: Project, url: str, secret: str) -> bool:
    """Make Label Studio send this project's events to `url`; False where it does already. An old secret is replaced."""
    with said_clearly(project.server, f"project {project.id}"):
        for hook in client.webhooks.list(project=str(project.id)):
            if hook.url == url:
                if (hook.headers or {}).get(HEADER) == secret and hook.is_active:
                    return False
                client.webhooks.delete(id=int(hook.id or 0))
        client.webhooks.create(
            project=project.id,
            url=url,
            headers={HEADER: secret},
            send_payload=True,
            send_for_all_actions=False,
            actions=list(ACTIONS),
            is_active=True,
        )
    return True


def _tell(report: EventFoldReport) -> None:
    if report.events:
        c = report.counts
        log.info("%d events: %d votes, %d withdrawn, %d ignored", report.events, c.votes, c.withdrawn, report.ignored)
    if report.damaged:
        log.error("%d events cannot be read any more and were set aside", report.damaged)
