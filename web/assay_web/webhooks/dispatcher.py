"""The thread of the web server that sends deliveries as they fall due and looks for events that nobody tells.

Deliveries lie in `webhooks.sqlite`, so that a restart forgets none: what was on its way when a server ended is sent
again when its lease is over, and receivers tell repetitions by `webhook-id`. Leaves out: one attempt (`sender`).
"""

import logging
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from assay.errors import AssayError
from assay.workspace import Workspace
from assay_web.webhooks.sender import TIMEOUT_S, send
from assay_web.webhooks.watcher import WorkspaceWatcher
from assay_web.webhooks.webhook_file import FILE, Delivery, WebhookFile

log = logging.getLogger(__name__)

#: Seconds after each failed attempt, as Standard Webhooks recommends; after the last the delivery has failed.
RETRY_S = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
SPREAD = 0.1  #: of each of them, so that many do not come back at once
TICK_S, WATCH_S = 0.5, 5.0
BUSY = 0.05  #: looks take at most this share of the time: votes come first
AT_ONCE = 4


class WebhookDispatcher:
    """`start` and `stop` with the server. Does next to nothing while the workspace has no webhook."""

    def __init__(self, workspace: Workspace, *, watch_s: float = WATCH_S) -> None:
        self._path = workspace.root / FILE
        self._watcher = WorkspaceWatcher(workspace)
        self._watch_s = watch_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="assay-webhooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """What is on its way is waited for, a few seconds at most."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(TIMEOUT_S + 1.0)

    def _run(self) -> None:
        look_at = 0.0
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="assay-webhook") as pool:
            while not self._ending.wait(TICK_S):
                if not self._path.is_file():
                    continue
                try:
                    with WebhookFile(self._path) as file:
                        if (began := time.monotonic()) >= look_at:
                            self._watcher.look(file)
                            ended = time.monotonic()
                            look_at = ended + max(self._watch_s, (ended - began) / BUSY)
                        due = file.claim(time.time(), lease_s=2 * TIMEOUT_S, most=AT_ONCE)
                    list(pool.map(self._deliver, due))
                except AssayError as error:
                    log.warning("webhooks wait: %s", error)
                except Exception as error:  # one failure must not end them until a restart
                    log.error("webhooks wait: %s", type(error).__name__, exc_info=error)

    def _deliver(self, delivery: Delivery) -> None:
        with WebhookFile(self._path) as file:
            try:
                secret, webhook = file.webhook(delivery.webhook)
            except AssayError:  # deleted meanwhile
                return
            if webhook.ended is not None:
                ended = {"now": time.time(), "next_at": None, "status": None, "error": webhook.ended, "address": None}
                file.settle(delivery, "failed", **ended)  # type: ignore[arg-type]
                return
            now = time.time()
            attempt = send(webhook.url, secret, delivery.message, delivery.body, private=webhook.private, now=now)
            waits = RETRY_S[delivery.attempts] if delivery.attempts < len(RETRY_S) else None
            if attempt.error is None:
                waits, state = None, "delivered"
            else:
                state = "waiting" if waits is not None and not attempt.gone else "failed"
            next_at = None
            if state == "waiting" and waits is not None:
                next_at = time.time() + waits * (1 + SPREAD * random.random())
            file.settle(
                delivery,
                state,  # type: ignore[arg-type]
                now=now,
                next_at=next_at,
                status=attempt.status,
                error=attempt.error,
                address=attempt.address,
            )
            if attempt.gone:
                file.end(webhook.id, "its receiver answered that it wants no more (410)")
