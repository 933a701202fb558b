"""State shared by all routes: the annotation service, the access file, short units of the store.

Votes are written to the journal at once; a thread folds them into the store every few seconds, when no other process
holds it; another makes backups where they are scheduled. Leaves out: permissions (`assay_web.access`).
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Request

from assay.backups.schedule import ScheduledBackups
from assay.errors import AssayError
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_pipelines.annotation.service import AnnotationService
from assay_web.accounts.access_file import FILE, AccessFile
from assay_web.accounts.attempts import SignInAttempts
from assay_web.accounts.passwords import Passwords
from assay_web.accounts.provider import OidcProvider
from assay_web.served.endpoint import running_servers
from assay_web.settings import RewardServer, WebSettings
from assay_web.webhooks.dispatcher import WebhookDispatcher

log = logging.getLogger(__name__)

#: Memory that DuckDB keeps between units of work. At a million comparisons a page reads 150 MB; without it, half of the
#: CPU time goes to allocation.
READ_MEMORY = "192MB"


class WebService:
    """`start` before the first request, `stop` after the last."""

    def __init__(self, workspace: Workspace, settings: WebSettings) -> None:
        #: For routes, with the page's limit on waiting for the store.
        self.workspace = Workspace(workspace.root, wait=settings.store_wait_s)
        self.settings = settings
        self.passwords = Passwords(settings.password_cost)
        self._patient = workspace
        self._ending = threading.Event()
        self._annotation: AnnotationService | None = None
        self._access: AccessFile | None = None
        self._attempts: SignInAttempts | None = None
        self._folding: threading.Thread | None = None
        self._backups = ScheduledBackups(workspace, settings.backups)
        self.provider = OidcProvider(settings.oidc) if settings.oidc is not None else None
        self._webhooks = WebhookDispatcher(self.workspace, watch_s=settings.webhooks_every_s)

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

    @property
    def reward_servers(self) -> tuple[RewardServer, ...]:
        """Those that the server was started with, and those that were started from the page and run."""
        return (*self.settings.reward_servers, *running_servers(self.workspace))

    @contextmanager
    def store(self) -> Iterator[Connection]:
        """The store for one short unit of work. Raises BusyError, naming the holder, when another process holds it."""
        with self.workspace.store.unit() as db:
            db.execute(f"SET GLOBAL block_allocator_memory = '{READ_MEMORY}'")
            yield db

    def start(self) -> None:
        self._access = AccessFile(self.workspace.root / FILE)
        self._attempts = SignInAttempts(self._access, self.settings.sign_in_limits)
        if not self.settings.open_access:
            _ = self.passwords.dummy_hash  # now, so that the first unknown name takes no longer than later ones
        self._annotation = AnnotationService(self._patient)
        self._folding = threading.Thread(target=self._fold, name="assay-fold", daemon=True)
        self._folding.start()
        self._backups.start()
        self._webhooks.start()

    def stop(self) -> None:
        self._ending.set()
        if self._folding is not None:
            self._folding.join()
        self._backups.stop()
        self._webhooks.stop()
        if self._annotation is not None:
            self._annotation.close()
            self._annotation = None
        if self._access is not None:
            self._access.close()
            self._access = self._attempts = None

    def drain(self) -> None:
        """Called at shutdown; requests in progress are answered."""
        self._ending.set()

    @property
    def is_ending(self) -> bool:
        """Whether the server is about to end: what goes on for long ends now."""
        return self._ending.is_set()

    @property
    def ready(self) -> bool:
        return self._annotation is not None

    def _fold(self) -> None:
        import pyarrow as pa

        # Imports pandas where it is installed, which takes most of a second: better now than during the first votes.
        pa.array([""])
        while not self._ending.wait(self.settings.fold_every_s):
            try:
                self.annotation.fold()
            except AssayError as error:  # the votes are safe in the journal; the next attempt may succeed
                log.warning("votes are not in the store yet: %s", error)
            except Exception as error:  # one failed attempt must not end folding until a restart
                log.error("votes are not in the store yet: %s", type(error).__name__, exc_info=error)


async def service_of(request: Request) -> WebService:  # async, so that it runs without a thread
    service: WebService = request.app.state.service
    return service


#: For routes: `service: ServiceNow`.
ServiceNow = Annotated[WebService, Depends(service_of)]
