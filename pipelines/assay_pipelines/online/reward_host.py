"""Where the rollouts of a loop are scored: in this process, or by a child process `assay serve`.

Covers: one scorer for the policy training whose model is replaced between two requests; a child process that is started
again when it ends. Leaves out: making models (`refit`), serving them (`assay_serving.server`).
"""

import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from assay.errors import BackendError
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay.system import parent_watchdog
from assay_pipelines.online.refit import RewardVersion
from assay_policy_training.rollouts.outage import WaitingScorer
from assay_serving.client import RemoteScorer, RewardClient
from assay_serving.client.administration import AdminClient
from assay_serving.scorer import ModelInfo, ScoreItem

log = logging.getLogger(__name__)
LOG = "serve.log"
DEADLINE_S = 600.0  #: of one request, and of a swap
END_S = 15.0  #: for the requests under way, when the child process is ended
RETRY_S = 5.0  #: between two starts of which the first failed


class RewardHost(Protocol):
    """A scorer whose model can be replaced. No request fails because of a swap, and a score names its version."""

    @property
    def info(self) -> ModelInfo: ...
    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]: ...
    def swap(self, version: RewardVersion) -> None: ...
    def close(self) -> None: ...


class InProcessReward:
    """Scores here, with the heads that the loop has loaded anyway."""

    def __init__(self, version: RewardVersion) -> None:
        self._version = version

    @property
    def info(self) -> ModelInfo:
        return self._version.scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return self._version.scorer.score(items, on_progress)

    def swap(self, version: RewardVersion) -> None:
        self._version = version

    def close(self) -> None:
        pass


class ServedReward:
    """Scores by `assay serve` in a child process, which others may query too (`url`, with the key `key`).

    It ends with this process, however that ends. One that ends by itself is started again at the same address, with the
    present model; rollouts are held until then.
    """

    def __init__(self, version: RewardVersion, folder: Path, models: Path, *, device: str, port: int = 0) -> None:
        """`folder`: of its log, `serve.log`. `models`: of later versions. Raises BackendError where it does not
        start."""
        self._version, self._folder, self._models, self._device = version, folder, models, device
        self.key = os.environ.get("ASSAY_API_KEY") or secrets.token_urlsafe(24)
        self.restarts = 0
        self._closing = threading.Event()
        self.url = self._start(port)
        self._client = RewardClient(
            self.url, model=self.info.name, api_key=self.key, deadline=DEADLINE_S, failures_in_place=True
        )
        self._scorer = WaitingScorer(RemoteScorer(self._client))
        self._supervisor = threading.Thread(target=self._supervise, name="assay-serve-supervisor", daemon=True)
        self._supervisor.start()

    @property
    def info(self) -> ModelInfo:
        return self._version.scorer.info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        return self._scorer.score(items, on_progress)

    def swap(self, version: RewardVersion) -> None:
        """Requests after it get the new model; those under way are answered by the old one."""
        self._version = version
        plan = {"reference": str(version.folder), "device": self._device}
        for last in (False, True):
            try:
                with AdminClient(self.url, api_key=self.key, timeout=DEADLINE_S) as orders:
                    orders.swap(self.info.name, plan, mode="now")
            except BackendError:
                self._client.wait_until_ready(DEADLINE_S)  # started again, with this model unless it was late
                served = {info.name: info.version for info in self._client.models()}
                if served.get(self.info.name) == self.info.version:
                    return
                if last:
                    raise
            else:
                return

    def close(self) -> None:
        self._closing.set()
        self._client.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._supervisor.join(END_S)

    def _supervise(self) -> None:
        while not self._closing.is_set():
            status = self._process.wait()
            if self._closing.is_set():
                return
            self.restarts += 1
            log.warning("assay serve ended with status %s; it is started again", status)
            try:
                self._start(int(self.url.rsplit(":", 1)[1].rstrip("/")))
            except BackendError as error:
                log.error("%s", error)
                self._closing.wait(RETRY_S)

    def _start(self, port: int) -> str:
        """Its URL, once it has loaded the model."""
        folders = {str(self._version.folder.parent), str(self._models)}
        allowed = [part for folder in sorted(folders) for part in ("--model-folder", folder)]
        model = ("serve", str(self._version.folder), "--name", self.info.name, "--device", self._device)
        command = (sys.executable, "-m", "assay.cli", *model, "--port", str(port), "--in-process", "--json")
        guard = (sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid()))
        with (self._folder / LOG).open("ab") as errors:
            self._process = subprocess.Popen(
                [*guard, *command, *allowed],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "ASSAY_API_KEY": self.key},
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BackendError(f"assay serve did not start; see {self._folder / LOG}")
        return str(json.loads(line)["url"])
