"""A reward server (`assay serve`) as a child process: started, waited for, ended; never left behind.

A guard (`assay.system.parent_watchdog`) is its parent and ends it when this process is gone, also by `kill -9`.
Leaves out: what the server does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from assay.errors import BackendError
from assay.system import parent_watchdog

END_S = 75.0  #: a little more than the server gives the requests that it still answers


@dataclass(frozen=True)
class ReadyServer:
    """Where it answers, and the names of its models."""

    url: str
    models: tuple[str, ...]


class RewardChild:
    """Started when it is made. `key`: opens it, told to it in its environment, where no list of processes shows it."""

    def __init__(self, options: Sequence[str], *, key: str) -> None:
        guard = [sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*guard, sys.executable, "-m", "assay", "serve", "--json", *options],
            env={**os.environ, "ASSAY_API_KEY": key},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # its errors and logs go where ours go
            start_new_session=True,
        )
        self._ending = False

    def wait_ready(self) -> ReadyServer:
        """When its models are loaded, which takes as long as it takes.

        Raises BackendError, with the server's own exit code, where it ends first; it has said why.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with suppress(ValueError):
                address = json.loads(line)
                if "url" in address:
                    threading.Thread(target=_drain, args=(self._process.stdout,), daemon=True).start()
                    return ReadyServer(address["url"], tuple(model["name"] for model in address["models"]))
        status = self._process.wait()
        error = BackendError("the reward server did not start: see above")
        error.exit_code = status if 0 < status < 128 else error.exit_code
        raise error

    def when_it_ends(self, act: Callable[[int], None]) -> None:
        """Call `act` with its status, from a thread, where it ends without having been told to."""

        def watch() -> None:
            status = self._process.wait()
            if not self._ending:
                act(status)

        threading.Thread(target=watch, name="assay-reward-child", daemon=True).start()

    def stop(self) -> None:
        """Tell it to end, wait for it, and kill what is left of it; safe to call twice."""
        self._ending = True
        try:
            if self._process.poll() is None:
                self._signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_S)
        finally:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _drain(stream: IO[bytes]) -> None:
    for _ in stream:  # so that it never waits for a reader
        pass
