"""What the routes share while the server runs: the annotation service, who is signed in, the store for a moment.

Votes go into the journal at once and into the store when nobody holds it: a thread tries every few seconds. Leaves out:
routes (beside this package), who may do what (`assay_web.access`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from assay.errors import AssayError
from assay.workspace import Workspace
from assay_pipelines.annotation.service import AnnotationService
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.attempts import SignInAttempts
from assay_web.accounts.passwords import Passwords
from assay_web.settings import WebSettings

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

#: The server keeps so much memory for what it reads of the store, from one unit to the next; more is given back after
#: each. At a million comparisons a page reads 150 MB: without it half of its CPU time goes to asking for that memory.
READ_MEMORY = "192MB"


class WebService:
    """`start` before the first request, `stop` after the last."""

    def __init__(self, workspace: Workspace, settings: WebSettings) -> None:
        #: For routes: nobody waits for the store any longer than a page may.
        self.workspace = Workspace(workspace.root, wait=settings.store_wait_s)
        self.settings = settings
        self.passwords = Passwords(settings.password_cost)
        self._patient = workspace
        self._ending = threading.Event()
        self._annotation: AnnotationService | None = None
        self._access: AccessFile | None = None
        self._attempts: SignInAttempts | None = None
        self._folding: threading.Thread | None = None

    @property
    def annotation(self) -> AnnotationService:
        assert self._annotation is not None, "the service has not been started"
        return self._annotation

    @property
    def access(self) -> AccessFile:
        assert self._access is not None, "the service has not been started"
        return self._access

    @property
    def attempts(self) -> SignInAttempts:
        assert self._attempts is not None, "the service has not been started"
        return self._attempts

    @contextmanager
    def store(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """The store for one short unit of work. Raises BusyError, naming the holder, when another process keeps it."""
        with self.workspace.store.unit() as db:
            db.execute(f"SET GLOBAL block_allocator_memory = '{READ_MEMORY}'")
            yield db

    def start(self) -> None:
        self._access = AccessFile(self.workspace.root / FILE)
        self._attempts = SignInAttempts(self._access, self.settings.sign_in_limits)
        if not self.settings.open_access:
            _ = self.passwords.dummy_hash  # so that the first name without an account takes no longer than the next
        self._annotation = AnnotationService(self._patient)
        self._folding = threading.Thread(target=self._fold, name="assay-fold", daemon=True)
        self._folding.start()

    def stop(self) -> None:
        self._ending.set()
        if self._folding is not None:
            self._folding.join()
        if self._annotation is not None:
            self._annotation.close()
            self._annotation = None
        if self._access is not None:
            self._access.close()
            self._access = self._attempts = None

    def drain(self) -> None:
        """Called when the process is told to stop; requests in progress are answered."""
        self._ending.set()

    @property
    def ready(self) -> bool:
        return self._annotation is not None

    def _fold(self) -> None:
        import pyarrow as pa

        # Brings pandas with it, where that is installed: most of a second, better now than amid the first votes.
        pa.array([""])
        while not self._ending.wait(self.settings.fold_every_s):
            try:
                self.annotation.fold()
            except AssayError as error:  # the votes are safe in the journal; the next try may do
                log.warning("votes are not in the store yet: %s", error)
            except Exception as error:  # of one attempt; the votes that come after it must not wait for a restart
                log.error("votes are not in the store yet: %s", type(error).__name__, exc_info=error)


async def service_of(request: Request) -> WebService:  # async: without waiting it needs no thread of its own
    service: WebService = request.app.state.service
    return service


#: For routes: `service: ServiceNow`.
ServiceNow = Annotated[WebService, Depends(service_of)]
