"""Incremental reader of a run's `metrics.jsonl`: each call reads new lines, within a time limit, in bounded memory.

An incomplete line is left for the next call; an invalid one is counted and skipped. A truncated or replaced file (a run
resumed from a checkpoint) is read again from the start. Leaves out: which numbers are drawn (`run_charts`).
"""

import json
import math
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay_web.run_charts import MetricExtents, with_slices
from assay_web.runs.buckets import Array, Buckets

BLOCK = 1 << 20  #: bytes read at once
LONGEST = 64 * BLOCK  #: bytes of a line; reading stops at a longer one
LARGEST_STEP = 2**53  #: larger steps are invalid
TAIL = 64  #: last bytes read, compared to detect a file that was truncated and grew again
#: Columns beside a row's own: tokens trained on and seconds of training up to it, which curves are drawn over.
TOKENS, SECONDS = "x:tokens", "x:seconds"
_decode = msgspec.json.Decoder().decode


class MetricsReader:
    """Hold `lock` while using it, and call `read` first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self.generation = secrets.token_hex(4)  #: changes when earlier points become invalid
        self.position, self.size, self.broken = 0, 0, 0
        self.behind = False  #: whether the time limit was reached before the end of the file
        self.step, self.evaluation = Buckets(), Buckets()
        self.last: dict[str, Mapping[str, Any]] = {"step": {}, "evaluation": {}}  #: newest row of each kind
        self.policy = False  #: whether it is a policy training
        self.overoptimised_from: int | None = None
        self._inode, self._tail = 0, b""
        self._passed = {TOKENS: 0.0, SECONDS: 0.0}

    @property
    def measured(self) -> MetricExtents:
        return MetricExtents(self.step.extents(), self.evaluation.extents())

    def read(self, seconds: float) -> None:
        """Read new lines for about `seconds`. The caller holds the lock."""
        try:
            stream = self.path.open("rb")
        except OSError:
            if self.position:
                self._begin()
            return
        until = time.monotonic() + seconds
        self.behind = False
        with stream:
            self._check(stream)
            stream.seek(self.position)
            while True:  # at least one block
                block = stream.read(BLOCK)
                end = block.rfind(b"\n") + 1
                while not end and len(block) % BLOCK == 0 and len(block) < LONGEST and (more := stream.read(BLOCK)):
                    block += more  # a line longer than a block
                    end = block.rfind(b"\n") + 1
                if not end:
                    break
                self._take(block[:end])
                self.position += end
                self._tail = (self._tail + block[max(0, end - TAIL) : end])[-TAIL:]
                stream.seek(self.position)
                if time.monotonic() >= until:
                    self.behind = True
                    break

    def _check(self, stream: Any) -> None:
        stat = os.fstat(stream.fileno())
        if self.position:
            stream.seek(max(0, self.position - len(self._tail)))
            same = stream.read(len(self._tail)) == self._tail
            if stat.st_ino != self._inode or stat.st_size < self.position or not same:
                self._begin()
        self._inode, self.size = stat.st_ino, stat.st_size

    def _take(self, block: bytes) -> None:
        rows: dict[str, list[Mapping[str, Any]]] = {"step": [], "evaluation": []}
        for line in block.split(b"\n"):
            if not line.strip():
                continue
            row = _parsed(line)
            kind = "evaluation" if row is not None and row.get("kind") == "eval" else "step"
            newest = (rows[kind][-1] if rows[kind] else self.last[kind]).get("step", -math.inf)
            if row is None or not row["step"] > newest:
                self.broken += 1
                continue
            if kind == "step":
                self._pass(row)
            rows[kind].append({**(with_slices(row) if "slices" in row else row), **self._passed})
            if self.overoptimised_from is None and row.get("overoptimised"):
                self.overoptimised_from = int(row["step"])
        for kind, buckets in (("step", self.step), ("evaluation", self.evaluation)):
            new_rows = rows[kind]
            if new_rows:
                self.policy = self.policy or "rollouts" in new_rows[0]
                buckets.add([row["step"] for row in new_rows], _columns(new_rows))
                self.last[kind] = new_rows[-1]

    def _pass(self, row: Mapping[str, Any]) -> None:
        """A policy's row has the seconds of its step, a reward model's those of the training."""
        seconds, tokens = row.get("seconds"), row.get("tokens")
        if isinstance(rate := row.get("tokens_per_second"), int | float) and isinstance(seconds, int | float):
            tokens = rate * seconds
        if isinstance(tokens, int | float) and math.isfinite(tokens):
            self._passed[TOKENS] += tokens
        if isinstance(seconds, int | float) and math.isfinite(seconds):
            self._passed[SECONDS] = seconds + (self._passed[SECONDS] if "rollouts" in row else 0.0)


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    """None for a line that is not an object with a step."""
    try:
        row = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            row = json.loads(line)  # accepts NaN, which Python's json writes
        except (ValueError, RecursionError):
            return None
    step = row.get("step") if isinstance(row, dict) else None
    return row if isinstance(step, int | float) and abs(step) <= LARGEST_STEP else None


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Array]:
    """The numbers of rows by key, [N] each."""
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if isinstance(value, int | float))
    columns = {}
    for key in keys:
        values = [row.get(key, math.nan) for row in rows]
        try:
            columns[key] = np.array(values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):  # not a number in some rows
            numbers = (value if isinstance(value, float) else math.nan for value in values)
            columns[key] = np.fromiter(numbers, np.float64, len(values))
    return columns
