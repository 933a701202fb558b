"""A run's metrics as JSON lines, one object per step, readable while it runs.

Covers: appending, resuming (lines past the restored step are dropped, as is an incomplete last one), reading.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from assay.system.atomic_files import replacing

FILE = "metrics.jsonl"


class MetricsFile:
    """Appends to `folder/metrics.jsonl`. Lines carry `step` and `kind` (train or eval)."""

    def __init__(self, folder: Path, *, keep_to_step: int = 0) -> None:
        """Keeps existing lines of steps up to `keep_to_step`."""
        self.path = folder / FILE
        rows = [row for row in read_metrics(folder) if row["step"] <= keep_to_step]
        with replacing(self.path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        self._stream = self.path.open("a", encoding="utf-8")

    def add(self, row: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(dict(row)) + "\n")
        self._stream.flush()

    def __enter__(self) -> MetricsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Every complete line; none where the file does not exist."""
    path = folder / FILE
    if not path.is_file():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
