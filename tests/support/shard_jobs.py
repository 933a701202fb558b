"""Jobs of bulk work for tests, and a stage that runs them: what they cost is stated, what they give can be checked."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from assay.compute.executor import Executor
from assay.compute.job import JobSpec
from assay.compute.stage import import_stage, map_stage, open_stage
from assay.errors import BadInputError
from assay.store.connection import Connection
from assay.workspace import Workspace


class Held:
    """An actor's object."""

    def pid(self) -> int:
        return os.getpid()

    def total(self, numbers: list[int]) -> int:
        if not numbers:
            raise BadInputError("nothing to add")
        return sum(numbers)


class Squares:
    """`number` and its square. Takes `seconds` a row; notes each shard that it begins in `log`.

    Waits before each shard until `log` names so many processes as `together` says, and before those that begin with
    `held_from` or a later number until there is a file beside `log` that is called `released`.
    """

    def __init__(self, seconds: float = 0.0, log: str = "", together: int = 0, held_from: int | None = None) -> None:
        self._seconds, self._log, self.opened = seconds, log, 0
        self._together, self._held_from = together, held_from

    def open(self) -> None:
        self.opened += 1

    def map(self, shard: pa.Table) -> pa.Table:
        numbers = shard.column("number").to_pylist()
        if self._log:
            with Path(self._log).open("a", encoding="utf-8") as log:
                log.write(f"{numbers[0]} {os.getpid()} {self.opened}\n")
            while self._waits(numbers[0]):
                time.sleep(0.02)
        time.sleep(self._seconds * len(numbers))
        return pa.table({"number": numbers, "square": [number**2 for number in numbers]})

    def _waits(self, first: int) -> bool:
        log = Path(self._log)
        if self._held_from is not None and first >= self._held_from:
            return not log.with_name("released").exists()
        return len({line.split()[1] for line in log.read_text(encoding="utf-8").splitlines()}) < self._together


class Deadly(Squares):
    """Kills its process at the shard that begins with `at`, as often as `times` says; the file `log` counts."""

    def __init__(self, at: int, log: str, times: int = 1) -> None:
        super().__init__(log=log)
        self._at, self._times = at, times

    def map(self, shard: pa.Table) -> pa.Table:
        result = super().map(shard)
        begun = [line.split()[0] for line in Path(self._log).read_text(encoding="utf-8").splitlines()]
        if shard.column("number")[0].as_py() == self._at and begun.count(str(self._at)) <= self._times:
            os.kill(os.getpid(), 9)
        return result


class Refusing:
    def open(self) -> None:
        pass

    def map(self, shard: pa.Table) -> pa.Table:
        raise BadInputError("no such column", field="text")


def tables(count: int, rows: int = 5) -> Iterator[pa.Table]:
    for number in range(count):
        yield pa.table({"number": list(range(number * rows, (number + 1) * rows))})


def squares(**arguments: object) -> JobSpec:
    return JobSpec("shard_jobs:Squares", arguments)


def count(db: Connection, shard: pa.Table, result: pa.Table) -> Mapping[str, int]:
    assert shard.num_rows == result.num_rows
    return {"rows": shard.num_rows, "sum": sum(result.column("square").to_pylist())}


def run_squares(
    workspace: Workspace, spec: JobSpec, executor: Executor, shards: int = 4
) -> tuple[dict[str, int], dict[int, bytes]]:
    with open_stage(workspace, "squares", spec, {"shards": shards}, lambda: tables(shards)) as stage:
        totals = import_stage(workspace, stage, map_stage(stage, executor), count, "run-x")
        return totals, {unit.number: Path(unit.result).read_bytes() for unit in stage.units}
