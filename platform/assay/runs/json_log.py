"""Logs of a run as JSON Lines, readable while it runs: metrics, rollouts.

Covers: appending, cutting a log back to a checkpoint by size or by step, reading. Leaves out: what the rows hold.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from assay.errors import BadInputError
from assay.system.atomic_files import replacing

METRICS_FILE = "metrics.jsonl"


class JsonLog:
    """A JSON Lines file that is appended to. `allow_nan`: otherwise a number that is not finite raises ValueError."""

    def __init__(self, path: Path, *, allow_nan: bool = False) -> None:
        self.path = path
        self._allow_nan = allow_nan

    def add(self, row: Mapping[str, Any]) -> None:
        self.append([row])

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        with self.path.open("a", encoding="utf-8") as stream:
            stream.writelines(
                json.dumps(row, ensure_ascii=False, allow_nan=self._allow_nan) + "\n" for row in map(dict, rows)
            )

    @property
    def size(self) -> int:
        """In bytes; 0 where there is no file."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def sync(self) -> int:
        """Flush to disk; returns the size in bytes."""
        with self.path.open("ab") as stream:
            os.fsync(stream.fileno())
            return stream.tell()

    def cut(self, size: int) -> None:
        """Remove what was written after a checkpoint. Raises BadInputError when the file is shorter than that."""
        if not self.path.is_file() or self.path.stat().st_size < size:
            raise BadInputError(f"shorter than when the checkpoint was made ({size} bytes)", file=self.path)
        os.truncate(self.path, size)

    def keep_to_step(self, step: int) -> None:
        """Remove the rows of later steps, and an incomplete last line."""
        self.replace([row for row in self.rows() if row["step"] <= step])

    def replace(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """The file has these rows instead, whole or not at all."""
        with replacing(self.path) as temporary:
            temporary.write_text("", encoding="utf-8")
            JsonLog(temporary, allow_nan=self._allow_nan).append(rows)

    def rows(self) -> list[dict[str, Any]]:
        """Every complete line; none where the file does not exist."""
        if not self.path.is_file():
            return []
        rows = []
        for line in self.path.read_bytes().splitlines():  # of bytes: a text has more line ends, which rows may contain
            try:
                rows.append(json.loads(line))
            except ValueError:  # not JSON, or cut within a character
                break
        return rows


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The metrics of a run that has this folder."""
    return JsonLog(folder / METRICS_FILE).rows()
