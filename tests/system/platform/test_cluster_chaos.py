"""Faults on a Ray cluster of two nodes: the tables of an undisturbed run in one process, nothing lost or doubled.

A pool is embedded by `embed_comparisons`, the import into the store included. What strikes when is drawn from a seed;
workers hold the unit that is struck, so that it is in the middle of one. Seeds: ASSAY_CHAOS_SEEDS, a number or
FIRST:END (default 1); each run is a line of JSON in the file ASSAY_CHAOS_LOG.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import chaos_child
import pyarrow as pa
import pytest
from ray_nodes import NamespaceNodes, namespaces_missing, variables
from store_contents import store_contents

from assay.compute.ray_cluster import LEAST_DEADLINE_S, MEDIANS
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")]

SEEDS = range(*map(int, os.environ.get("ASSAY_CHAOS_SEEDS", "1").split(":")))
UNITS = {"worker": 24, "stop": 30, "driver": 24, "node": 80, "cut": 80}
LATE_UNITS = 24
MARGIN_S = 10.0  #: after a deadline, until the work of a lost worker is done by another


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceNodes]:
    if reason := namespaces_missing():
        pytest.skip(f"{reason}; test_ray_cluster.py kills workers and nodes without them")
    control = tmp_path_factory.mktemp("control") / "run"
    cluster = NamespaceNodes({chaos_child.CONTROL: str(control)})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


class Run:
    """One job on the cluster, its control files and what its driver wrote."""

    def __init__(self, nodes: NamespaceNodes, pool: Path, folder: Path, holds: list[int], pace: float) -> None:
        self.nodes, self.folder = nodes, folder
        self.root = Path(shutil.copytree(pool, folder / "workspace"))
        for name, value in (("holds", json.dumps(holds)), ("pace", str(pace)), ("together", "2")):
            self.set(name, value)
        Path(nodes.environment[chaos_child.CONTROL]).write_text(str(folder), encoding="utf-8")
        self.drivers = 0
        nodes.wait()
        self.begin()

    def begin(self) -> None:
        """Start a driver, also one that goes on after another."""
        self.drivers += 1
        command = [sys.executable, chaos_child.__file__, str(self.root), f"ray:{self.nodes.address}", str(self.folder)]
        with (self.folder / "output").open("a") as output, (self.folder / "errors").open("a") as errors:
            self.driver = self.nodes.driver(command, stdout=output, stderr=errors)

    def set(self, name: str, value: str) -> None:
        temporary = self.folder / f".{name}"
        temporary.write_text(value, encoding="utf-8")
        temporary.rename(self.folder / name)

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def workers(self, name: str = "begun") -> list[tuple[int, int]]:
        return [(int(pid), int(parent)) for pid, parent in map(str.split, self.lines(name))]

    def progress(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines("progress")]

    def until(self, condition: Callable[[], Any], seconds: float = 240) -> Any:
        """What the condition gives when it is true; the driver is not done before."""
        end = time.monotonic() + seconds
        while not (value := condition()):
            assert self.driver.poll() is None, self.lines("errors")
            assert time.monotonic() < end, self.lines("errors")
            time.sleep(0.02)
        return value

    def victim(self, number: int, *, on_node: bool | None, chance: random.Random) -> int:
        """A worker that holds its unit: any, or the node's."""

        def holding() -> list[int]:
            pids = sorted({pid for pid, _ in self.workers(f"holding-{number}")})
            return [pid for pid in pids if _lives(pid) and on_node in (None, self.nodes.on_node(pid))]

        return int(chance.choice(self.until(holding)))

    def struck(self, number: int) -> float:
        self.set(f"struck-{number}", "")
        return time.monotonic()

    def ended(self, seconds: float = 240) -> None:
        assert self.driver.wait(seconds) == 0, self.lines("errors")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _contents(root: Path) -> dict[str, Any]:
    contents = store_contents(Workspace.open(root))
    contents["imported_shards"] = sorted(row[1:4] for row in contents["imported_shards"])  # no id, no time
    return contents


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], tuple[Path, dict[int, str], Any]]:
    """For a number of units: the pool, the hash of each result and the store afterwards, of one process."""
    made: dict[int, tuple[Path, dict[int, str], Any]] = {}

    def run(units: int) -> tuple[Path, dict[int, str], Any]:
        if units not in made:
            folder = tmp_path_factory.mktemp("undisturbed")
            pool = folder / "pool"
            with Workspace.create(pool).store.unit() as db:
                store_pairs(db, _pairs(units * chaos_child.ROWS), None)
            root = Path(shutil.copytree(pool, folder / "workspace"))
            (folder / "run").write_text(str(folder))
            environment = os.environ | variables() | {chaos_child.CONTROL: str(folder / "run")}
            command = [sys.executable, chaos_child.__file__, str(root), "local", str(folder)]
            subprocess.run(command, env=environment, check=True, timeout=300, stdout=subprocess.PIPE)
            lines = (folder / "progress").read_text().splitlines()
            hashes = {line["unit"]: line["hash"] for line in map(json.loads, lines)}
            assert len(hashes) == units
            made[units] = pool, hashes, _contents(root)
        return made[units]

    return run


def _pairs(count: int) -> pa.Table:
    rows = [
        {"row": n, "messages": [{"role": "user", "content": f"question {n} of word{n * 7 % 97}"}]}
        | {"first": f"answer {n}", "second": f"another {n}", "label": "first", "source": "test", "record_id": str(n)}
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=pair_schema())


def _worker(run: Run, chance: random.Random, holds: int) -> dict[str, Any]:
    for number in range(holds):
        os.kill(run.victim(number, on_node=None, chance=chance), signal.SIGKILL)
        struck = run.struck(number)
    return {"struck": struck}


def _driver(run: Run, chance: random.Random, holds: int) -> dict[str, Any]:
    for number in range(holds):
        run.victim(number, on_node=None, chance=chance)
        struck = run.struck(number)
        time.sleep(chance.uniform(0, 0.6))  # anywhere in a unit, its import or between two
        run.driver.kill()
        if run.driver.wait() != 0:
            run.begin()
    return {"struck": struck}


def _node(run: Run, chance: random.Random, holds: int) -> dict[str, Any]:
    run.victim(0, on_node=True, chance=chance)
    run.nodes.kill_node()
    before = {parent for _, parent in run.workers()}
    struck = run.struck(0)
    run.nodes.start_node()
    started = time.monotonic()
    run.until(lambda: {parent for _, parent in run.workers()} - before)
    hired = time.monotonic() - started
    run.set("pace", "0")
    return {"struck": struck, "hired_again_s": hired}


def _cut(run: Run, chance: random.Random, holds: int) -> dict[str, Any]:
    silently, seconds = chance.random() < 0.5, chance.uniform(30, 75)
    run.victim(0, on_node=True, chance=chance)
    run.nodes.cut(silently=silently)
    struck = run.struck(0)
    run.set("pace", "1.5")
    begun = len(run.workers())
    time.sleep(seconds)
    run.nodes.mend()
    mended, before = time.monotonic(), {pid for pid, _ in run.workers()[:begun]}
    figures = {"struck": struck, "cut_s": seconds, "silently": silently}
    if run.driver.poll() is None:  # it gets work again, by a new worker; until then there is work left
        run.set("pace", "2.5")

        def hired() -> bool:
            return any(run.nodes.on_node(pid) for pid, _ in run.workers()[begun:] if pid not in before)

        with suppress(AssertionError):
            run.until(hired)
        if hired():
            figures["hired_again_s"] = time.monotonic() - mended
        run.set("pace", "0")
    return figures


def _stop(run: Run, chance: random.Random, holds: int) -> dict[str, Any]:
    victim = run.victim(0, on_node=None, chance=chance)
    os.kill(victim, signal.SIGSTOP)
    struck = run.struck(0)
    resume = chance.choice(["before", "after", "end"])
    if resume == "before":
        time.sleep(chance.uniform(1, 8))
    elif resume == "after":
        run.until(lambda: any("its work goes to another" in line for line in run.lines("errors")))
        time.sleep(chance.uniform(0, 3))
    else:
        run.driver.wait(240)
    figures = {"struck": struck, "resume": resume, "lived": _lives(victim)}
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGCONT)
    return figures


STRIKES = {"worker": _worker, "node": _node, "driver": _driver, "stop": _stop, "cut": _cut}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fault", UNITS)
def test_faults_lose_and_double_nothing(
    fault: str, seed: int, nodes: NamespaceNodes, undisturbed: Callable[[int], Any], tmp_path: Path
) -> None:
    chance = random.Random(f"{fault} {seed}")
    late = seed % 2 == 1 and fault != "node"  # then nothing is left to do but what the lost worker had
    units = LATE_UNITS if late else UNITS[fault]
    pool, hashes, contents = undisturbed(units)
    low, high = (units - 6, units - 2) if late else (3, 10)
    strikes = chance.randint(1, 2) if fault in ("worker", "driver") else 1
    holds = sorted(chance.randint(low, high) for _ in range(strikes))
    run = Run(nodes, pool, tmp_path, holds, pace=0.5 if fault in ("node", "stop") and not late else 0.1)
    began = time.monotonic()
    try:
        figures = STRIKES[fault](run, chance, len(holds))
        run.ended()
    finally:
        run.driver.kill()
        run.driver.wait()
    progress = run.progress()
    times = [line["at"] for line in progress]
    struck = figures.pop("struck")
    points = [struck, *(at for at in times if at > struck)]
    stall = max((b - a for a, b in pairwise(points)), default=0.0)
    took = statistics.median(line["took"] for line in progress if line["took"])
    deadline = max(LEAST_DEADLINE_S, MEDIANS * took)
    record = {"fault": fault, "seed": seed, "late": late, "holds": holds, **figures}
    record |= {"stall_s": round(stall, 2), "deadline_s": round(deadline, 2)}
    record |= {"begun": len(run.workers()), "seconds": round(times[-1] - began, 1), "drivers": run.drivers}
    if log := os.environ.get("ASSAY_CHAOS_LOG"):
        with Path(log).open("a") as stream:
            print(json.dumps(record), file=stream)
    mapped = {line["unit"]: line["hash"] for line in progress}
    assert mapped == hashes
    for driver in {line["driver"] for line in progress}:  # each gives a unit once
        assert Counter(line["unit"] for line in progress if line["driver"] == driver).most_common(1)[0][1] == 1
    rows = units * chaos_child.ROWS
    (report,) = map(json.loads, run.lines("output"))  # and nothing else
    assert report == {"embedded": rows if run.drivers == 1 else report["embedded"], "selected": rows}
    assert report["embedded"] in (0, rows)  # 0: a driver was killed after its last import
    assert _contents(run.root) == contents
    assert not any(path.is_dir() for path in (run.root / "stages").iterdir())
    if fault in ("cut", "stop"):  # a killed worker's stall is the start of another
        assert stall <= deadline + MARGIN_S, record
    if fault in ("node", "cut") and not late:
        assert "hired_again_s" in figures, record
