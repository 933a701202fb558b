"""Processes as /proc lists them, while they start and end: what ends between two reads is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def children(parent: int, said: bytes = b"") -> list[int]:
    """Process ids of its children, whichever thread started them, whose command line contains `said`."""
    found = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended: its children are another thread's now
            found += [int(pid) for pid in task.read_text().split()]
    return [pid for pid in found if said in command_line(pid)]


def command_line(pid: int) -> bytes:
    """NUL-separated; empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def tree(parent: int) -> Iterator[int]:
    """All processes below it, then itself."""
    for child in children(parent):
        yield from tree(child)
    yield parent
