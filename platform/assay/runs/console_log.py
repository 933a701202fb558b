"""What a run printed, in its folder: standard output and standard error, each line with its time.

Covers: what Python code of the main thread's process writes while a run is in progress, also one begun on the command
line; the error that ended it; reading. Progress that is drawn over itself leaves its last state, colours are taken out.
Leaves out: what native code and other processes print, metrics (`assay.runs.json_log`).

    RUN/console.log             a line: time (UTC), a space, text. At most 2 MB: of longer output the end is kept
"""

import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from assay.errors import AssayError

FILE = "console.log"
LARGEST = 2_000_000  #: bytes; a file that grows past them loses its first half
LONGEST_LINE = 4000  #: characters
_CONTROL = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b.|[\x00-\x08\x0b-\x1f\x7f]")
_UP = re.compile(r"\x1b\[\d*[AF]")  #: a bar that is drawn over the lines before


@contextmanager
def console_to(folder: Path) -> Iterator[None]:
    """Copy what is printed during the block into the folder; nothing in a thread, where it may be another's.

    A block within it copies to both. What cannot be written is dropped: no run ends because of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    log = _Console(folder / FILE)
    with ExitStack() as stack:
        stack.callback(log.close)
        for stream in (sys.stdout, sys.stderr):
            stack.enter_context(_copied(stream, log.writer()))
        try:
            yield
        except BaseException as error:
            expected = isinstance(error, AssayError | KeyboardInterrupt | SystemExit)
            log.writer()(
                f"{type(error).__name__}: {error}\n" if expected else "".join(traceback.format_exception(error))
            )
            raise


@contextmanager
def _copied(stream: Any, copy: Callable[[str], None]) -> Iterator[None]:
    """Replaces the object's `write`: whoever holds the stream already, such as a log handler, is copied, too."""
    replaced = vars(stream).get("write") if hasattr(stream, "__dict__") else None
    write = getattr(stream, "write", None)

    def both(text: str) -> Any:
        copy(text)
        return write(text)  # type: ignore[misc]

    try:
        stream.write = both
    except AttributeError:  # no stream, or one that allows no change
        yield
        return
    try:
        yield
    finally:
        if replaced is None:
            with suppress(AttributeError):
                del stream.write
        else:
            stream.write = replaced


class _Console:
    """The file, written line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._file: TextIO | None = None
        self._size = 0
        self._process = os.getpid()
        self._flushes: list[Callable[[], None]] = []

    def writer(self) -> Callable[[str], None]:
        """A function for the texts of one stream."""
        line = ""

        def write(text: str) -> None:
            nonlocal line
            if os.getpid() != self._process or not isinstance(text, str):  # a forked process has a console of its own
                return
            *lines, line = (line + text[-LARGEST:]).split("\n")
            line = _drawn(line)[: LONGEST_LINE + 1]
            if lines:
                self._add([_plain(text) for text in lines if not _UP.search(text)])

        self._flushes.append(lambda: write("\n") if _plain(line) else None)
        return write

    def close(self) -> None:
        for flush in self._flushes:
            flush()
        with self._lock:
            if self._file is not None:
                with suppress(OSError):
                    self._file.close()

    def _add(self, lines: list[str]) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        with self._lock, suppress(OSError, ValueError):
            if self._file is None:
                self._file = self._path.open("a", encoding="utf-8", errors="replace")
            for line in lines:
                self._size += self._file.write(f"{now} {line}\n")
            self._file.flush()
            if self._size > LARGEST // 2 and self._path.stat().st_size > LARGEST:
                self._halve(now)

    def _halve(self, now: str) -> None:
        end = self._path.read_bytes()[-LARGEST // 2 :]
        assert self._file is not None
        self._file.close()
        with self._path.open("wb") as stream:
            stream.write(f"{now} (earlier output was dropped)\n".encode() + end[end.find(b"\n") + 1 :])
        self._file, self._size = self._path.open("a", encoding="utf-8", errors="replace"), 0


def _drawn(line: str) -> str:
    """What a line shows in the end, where a carriage return begins it anew."""
    return next((part for part in reversed(line.split("\r")) if part), "")


def _plain(line: str) -> str:
    text = _CONTROL.sub("", _drawn(line.rstrip("\r")))
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]} (cut)"


@dataclass(frozen=True)
class ConsolePage:
    """Whole lines from a byte on. `next`: the byte behind them. `size`: of the file."""

    lines: list[str]
    first: int
    next: int
    size: int


def read_console(folder: Path, *, after: int | None = None, most: int = 200_000) -> ConsolePage:
    """The lines after a byte, or the last ones; at most `most` bytes. Empty where nothing was printed. A file that is
    shorter than `after` was cut: its last lines."""
    try:
        with (folder / FILE).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            start = after if after is not None and after <= size else max(0, size - most)
            stream.seek(start)
            block = stream.read(most)
            if start and start != after:  # within a line
                skipped = block.find(b"\n") + 1
                start, block = start + skipped, block[skipped:]
    except OSError:
        return ConsolePage([], 0, 0, 0)
    end = block.rfind(b"\n") + 1
    lines = block[:end].decode(errors="replace").split("\n")[:-1]
    return ConsolePage(lines, start, start + end, size)
