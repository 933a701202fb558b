"""A reward server (`assay serve`) as a child process: start, wait until ready, stop.

Its parent is a watchdog (`assay.system.parent_watchdog`) that ends it when this process is gone, also after `kill -9`.
Leaves out: what the server does.
"""

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

END_S = 75.0  #: a little longer than the server's own shutdown timeout


@dataclass(frozen=True)
class ReadyServer:
    """Address of the started server and the names of its models."""

    url: str
    models: tuple[str, ...]


class RewardChild:
    """Starts the server. `key`: its API key, passed in the environment, where process listings do not show it."""

    def __init__(self, options: Sequence[str], *, key: str) -> None:
        guard = [sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid())]
        self._process = subprocess.Popen(
            [*guard, sys.executable, "-m", "assay", "serve", "--json", *options],
            env={**os.environ, "ASSAY_API_KEY": key},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,  # stderr is inherited
            start_new_session=True,
        )
        self._ending = False

    def wait_ready(self) -> ReadyServer:
        """Wait, without a limit, until the models are loaded.

        Raises BackendError, with the server's exit code, if it ends first; its own output says why.
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
        """Call `act` with the exit status, from a thread, if the server ends without `stop`."""

        def watch() -> None:
            status = self._process.wait()
            if not self._ending:
                act(status)

        threading.Thread(target=watch, name="assay-reward-child", daemon=True).start()

    def stop(self) -> None:
        """Terminate the server, wait, and kill what is left of its process group. Safe to call twice."""
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
    for _ in stream:  # an unread pipe would block the server
        pass
