"""Single key presses from a terminal, restored afterwards whatever happens, or the same characters from a pipe."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

END = ""  #: no more input
ESCAPE = "\x1b"


class KeyReader(Protocol):
    def key(self) -> str:
        """The next key, or END. Ctrl-C raises KeyboardInterrupt."""

    def line(self, prompt: str) -> str:
        """A line of text, with the line editing that the terminal offers."""


class PipedKeys:
    """Characters of a stream; white space between keys means nothing."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def key(self) -> str:
        while (character := self._stream.read(1)) and character.isspace():
            pass
        return character

    def line(self, prompt: str) -> str:
        return self._stream.readline().strip()


class TerminalKeys:
    """The controlling terminal of standard input."""

    def __init__(self) -> None:
        self._handle = sys.stdin.fileno()
        self._waiting = b""

    def key(self) -> str:
        with self._raw():
            first = self._byte()
            if first == b"\x04":  # Ctrl-D
                return END
            if first == b"\x1b":  # an arrow or function key is several bytes: none of them is a key of ours
                while select.select([self._handle], [], [], 0.02)[0]:
                    os.read(self._handle, 32)
                return ESCAPE
            length = 1 if first < b"\x80" else 2 if first < b"\xe0" else 3 if first < b"\xf0" else 4
            following = b"".join(self._byte() for _ in range(length - 1)) if first else b""
            return (first + following).decode("utf-8", "replace")

    def line(self, prompt: str) -> str:
        try:
            return input(prompt).strip()
        except EOFError:
            return ""

    def _byte(self) -> bytes:
        return os.read(self._handle, 1)

    @contextmanager
    def _raw(self) -> Iterator[None]:
        import termios
        import tty

        before = termios.tcgetattr(self._handle)
        try:
            tty.setcbreak(self._handle, termios.TCSADRAIN)  # keeps what was typed ahead, and Ctrl-C
            yield
        finally:
            termios.tcsetattr(self._handle, termios.TCSADRAIN, before)


def open_keys() -> KeyReader:
    return TerminalKeys() if sys.stdin.isatty() else PipedKeys(sys.stdin)
