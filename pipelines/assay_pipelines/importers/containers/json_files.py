"""JSON Lines, and one JSON array of objects."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.data.compression import decompressed
from assay.data.json_lines import BOM, Lines, RowError, damaged, parse_object
from assay_pipelines.importers.containers.container import Record, kilobytes_read
from assay_pipelines.importers.containers.json_elements import ArrayError, JsonElements

SNIFF_BYTES = 4096


class JsonLines:
    """One object a line. Rows count lines."""

    unit = "kB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "JSON Lines"
        self._lines = Lines(path)
        self.size: int | None = self._lines.size // 1024

    def position(self) -> int:
        return self._lines.position // 1024

    def columns(self) -> list[str] | None:
        return None

    def records(self) -> Iterator[Record]:
        self._lines = Lines(self.path)
        for row, line in self._lines:
            yield _record(row, line)


class JsonArray:
    """One JSON array of objects, over any number of lines. Rows count the elements."""

    unit = "kB"

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.description = path, path.name, "a JSON array"
        lines = Lines(path)  # opens the file, and so complains early
        self.size: int | None = lines.size // 1024
        self._raw: Any = None

    def position(self) -> int:
        return kilobytes_read(self._raw, self.size)

    def columns(self) -> list[str] | None:
        return None

    def records(self) -> Iterator[Record]:
        row = 0
        with self.path.open("rb") as self._raw:
            try:
                for row, element in enumerate(JsonElements(decompressed(self._raw)), start=1):
                    yield _record(row, element)
            except (ArrayError, EOFError, OSError, zlib.error) as error:
                raise damaged(self.path, row, error, what="JSON array") from error


def _record(row: int, raw: bytes) -> Record:
    try:
        return row, parse_object(raw), raw
    except RowError as error:
        return row, error, raw


def json_container(path: Path) -> JsonLines | JsonArray:
    """JSON Lines or a JSON array, by the first character that is not white space."""
    lines = JsonLines(path)  # opens the file, and so complains early
    with path.open("rb") as raw:
        try:
            start = decompressed(raw).read(SNIFF_BYTES)
        except (EOFError, OSError, zlib.error):
            return lines  # reading it raises the error
    return JsonArray(path) if start.removeprefix(BOM).lstrip().startswith(b"[") else lines
