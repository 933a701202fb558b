"""`assay` in a process of its own that need not be started: a fork of this one, whose imports (5 s of CPU time where
torch is among them) it has. For commands that are killed, interrupted, or that run beside others.

Its output goes to a file. What a command imports and how it starts is for tests that start the program itself.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from assay.cli.main import main


class ForkedCommand:
    """Ends with `kill`, at the latest: a process that nobody waits for stays."""

    def __init__(self, *arguments: str | Path) -> None:
        self.code: int | None = None  #: exit code, negative for a signal
        self._said = ""
        self._file, path = tempfile.mkstemp()
        os.unlink(path)
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                code = self._run([str(argument) for argument in arguments])
            finally:
                os._exit(code)

    def _run(self, arguments: list[str]) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):  # a shell in the background has Ctrl-C ignored
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        for descriptor in (1, 2):
            os.dup2(self._file, descriptor)
        sys.stdout, sys.stderr = (os.fdopen(os.dup(descriptor), "w", buffering=1) for descriptor in (1, 2))
        try:
            main(arguments)
        except SystemExit as ended:
            return int(ended.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 0

    def ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._said, self.code = self.output(), os.waitstatus_to_exitcode(status)
                os.close(self._file)
        return self.code is not None

    def until(self, condition: Callable[[], bool], patience_s: float = 600) -> None:
        """Until the condition holds, while the command runs."""
        last = time.monotonic() + patience_s
        while not condition():
            assert not self.ended(), self.output()
            assert time.monotonic() < last, self.output()
            time.sleep(0.02)

    def wait(self, patience_s: float = 600) -> int:
        last = time.monotonic() + patience_s
        while not self.ended():
            assert time.monotonic() < last, self.output()
            time.sleep(0.02)
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def output(self) -> str:
        """Of both streams, so far."""
        if self.code is not None:
            return self._said
        return os.pread(self._file, os.fstat(self._file).st_size, 0).decode(errors="replace")
