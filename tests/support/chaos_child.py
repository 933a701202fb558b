"""The driver of a chaos run, and the encoder of stated cost that its workers open: embeds a workspace's pool.

    python chaos_child.py WORKSPACE WHERE FOLDER

`FOLDER/progress` gets a line as each result arrives; the encoder's side of the folder is in `PacedEncoder`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.compute import stage as stages
from assay.compute.executor import Executor, open_executor
from assay.compute.job import JobSpec, ShardJob, Unit, UnitDone, file_hash
from assay.data.snapshots import Selection
from assay.workspace import Workspace
from assay_pipelines.embedding import stored
from assay_pipelines.embedding.hashing import HashingEncoder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ROWS = 10  #: of a unit
CONTROL = "ASSAY_CHAOS"  #: variable: a file that names the folder of the run


class PacedEncoder:
    """Hashed words, `pace` seconds a unit. Each unit that it begins is a line in `begun`: process, Ray's node process.

    From the unit of each number in `holds` on, every worker waits, and says so in `holding-N`, until there is
    `struck-N`. The first unit waits until so many nodes have begun as `together` says.
    """

    name, dimension = "paced@1", 16

    def __init__(self) -> None:
        self._hashing = HashingEncoder(self.dimension)
        self._folder: Path | None = None

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        folder = self._folder = self._folder or Path(Path(os.environ[CONTROL]).read_text(encoding="utf-8"))
        begun = _noted(folder / "begun")
        while len({line.split()[1] for line in _lines(folder / "begun")}) < int(_text(folder / "together", "1")):
            time.sleep(0.02)
        for number, threshold in enumerate(json.loads(_text(folder / "holds", "[]"))):
            struck = folder / f"struck-{number}"
            if begun >= threshold and not struck.exists():
                _noted(folder / f"holding-{number}")
                while not struck.exists():
                    time.sleep(0.02)
        time.sleep(float(_text(folder / "pace", "0")))
        return self._hashing.encode(texts)


def _noted(path: Path) -> int:
    """How many lines there are with this process's."""
    with path.open("a", encoding="utf-8") as log:
        log.write(f"{os.getpid()} {os.getppid()}\n")
    return len(_lines(path))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _text(path: Path, default: str) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else default


class TimedExecutor:
    """An executor, and the seconds that its workers said each unit took."""

    def __init__(self, executor: Executor) -> None:
        self._executor, self.seconds = executor, dict[int, float]()

    def run(self, spec: JobSpec, units: Sequence[Unit], *, opened: ShardJob | None = None) -> Iterator[UnitDone]:
        for done in self._executor.run(spec, units, opened=opened):
            self.seconds[done.unit.number] = done.seconds
            yield done


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    root, where, folder = sys.argv[1:]
    executor = TimedExecutor(open_executor(where))
    with (Path(folder) / "progress").open("a", encoding="utf-8") as progress:

        def recorded(*arguments: Any, **options: Any) -> Iterator[Unit]:
            for unit in stages.map_stage(*arguments, **options):
                line = {"at": time.monotonic(), "unit": unit.number, "hash": file_hash(Path(unit.result))}
                line["took"] = executor.seconds.get(unit.number, 0.0)
                print(json.dumps(line | {"driver": os.getpid()}), file=progress, flush=True)
                yield unit

        vars(stored)["map_stage"] = recorded
        report = stored.embed_comparisons(
            Workspace.open(Path(root)),
            PacedEncoder(),
            Selection(("unverified",)),
            "chaos",
            page=ROWS,
            executor=executor,
            reference="chaos_child:PacedEncoder",
        )
    print(json.dumps({"embedded": report.embedded, "selected": report.selected}))


if __name__ == "__main__":
    main()
