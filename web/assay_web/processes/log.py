"""The output of a process: its end, and what came after a position, for a page that follows it.

Progress bars overwrite their line with carriage returns; only the last state of a line is shown.
"""

import os
from pathlib import Path

from pydantic import BaseModel

OUTPUT_FILE = "output.txt"
TAIL = 6_000  #: characters of the end that a record carries
MOST = 256_000  #: bytes of one part of a log


class LogPart(BaseModel):
    """`text` begins at byte `start` of `size`; the next part at `end`."""

    text: str
    start: int
    end: int
    size: int


def log_part(folder: Path, start: int) -> LogPart:
    """From a byte on, at most MOST; a negative `start` is counted from the end."""
    try:
        with (folder / OUTPUT_FILE).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = max(0, size + start) if start < 0 else min(start, size)
            file.seek(begin)
            data = file.read(MOST)
    except OSError:
        return LogPart(text="", start=0, end=0, size=0)
    data = data[: len(data) - _cut(data)]
    return LogPart(text=data.decode("utf-8", "replace"), start=begin, end=begin + len(data), size=size)


def tail(folder: Path, characters: int = TAIL) -> str:
    """The end, as a terminal would show it."""
    text = log_part(folder, -4 * characters).text
    lines = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return "\n".join(lines)[-characters:]


def _cut(data: bytes) -> int:
    """Bytes at the end that begin a character whose rest has not been written yet."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if 0xC2 <= byte <= 0xF4:  # begins a character of several bytes
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < need else 0
        if byte & 0x80 == 0:
            return 0
    return 0
