"""Bulk work on shards: one result whatever maps them, exact resume, and what is said when a worker or a job fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shard_jobs import run_squares, squares, tables

from assay.compute import job as jobs
from assay.compute import local
from assay.compute import stage as stages
from assay.compute.executor import open_executor
from assay.compute.job import JobSpec, Unit, is_mapped
from assay.compute.local import LocalExecutor
from assay.compute.stage import Stage, map_stage, open_stage
from assay.errors import AssayError, BackendError, BadInputError
from assay.runs.process import is_alive
from assay.workspace import Workspace

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.usefixtures("path")
def test_processes_give_the_bytes_that_this_process_gives(workspace: Workspace, tmp_path: Path) -> None:
    here = run_squares(workspace, squares(), LocalExecutor(), 12)
    assert here[0] == {"rows": 60, "sum": sum(n**2 for n in range(60))}
    log = tmp_path / "log"
    apart = run_squares(workspace, squares(log=str(log)), LocalExecutor(2), 12)
    assert apart[0] == here[0]
    plain = {n: pq.read_table(pa.BufferReader(content)) for n, content in here[1].items()}
    assert {n: pq.read_table(pa.BufferReader(content)) for n, content in apart[1].items()} == plain
    assert here[1] == run_squares(workspace, squares(), LocalExecutor(2), 12)[1]
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(int(first) for first, *_ in lines) == list(range(0, 60, 5))
    assert {opened for *_, opened in lines} == {"1"}  # once a worker, however many shards
    assert len({pid for _, pid, _ in lines}) <= 2
    assert str(os.getpid()) not in {pid for _, pid, _ in lines}
    assert not any((workspace.root / stages.FOLDER).iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("path")
def test_a_killed_worker_costs_its_unit_alone(workspace: Workspace, tmp_path: Path) -> None:
    spec = JobSpec("shard_jobs:Deadly", {"at": 5, "log": str(tmp_path / "log")})
    assert run_squares(workspace, spec, LocalExecutor(1))[0]["rows"] == 20
    with pytest.raises(BackendError, match=r"00001.parquet: its worker was killed 3 times"):
        run_squares(workspace, JobSpec(spec.target, {**spec.arguments, "times": 99}), LocalExecutor(1))


@pytest.mark.slow
@pytest.mark.usefixtures("path")
def test_the_job_that_kills_its_worker_is_named_not_those_beside_it(workspace: Workspace, tmp_path: Path) -> None:
    spec = JobSpec("shard_jobs:Deadly", {"at": 5, "log": str(tmp_path / "log"), "times": 99})
    with pytest.raises(BackendError, match=r"00001.parquet: its worker was killed 3 times"):
        run_squares(workspace, spec, LocalExecutor(2))
    begun = [line.split()[0] for line in (tmp_path / "log").read_text().splitlines()]
    assert begun.count("5") == 3


def test_a_pool_that_breaks_when_a_unit_is_handed_over_is_a_try(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools: list[object] = []

    class BrokenPool:
        def __init__(self, *_: object) -> None:
            pools.append(self)
            assert len(pools) <= 3, "it would never end"

        def submit(self, *_: object) -> None:
            raise BrokenProcessPool

        def shutdown(self, **_: object) -> None:
            pass

    monkeypatch.setattr(local, "ProcessPoolExecutor", BrokenPool)
    with pytest.raises(BackendError, match=r"00000.parquet: its worker was killed 3 times"):
        run_squares(workspace, squares(), LocalExecutor(2))


def test_what_a_job_refuses_is_said_and_what_was_done_is_kept(workspace: Workspace) -> None:
    with pytest.raises(BadInputError, match="field 'text': no such column"):
        run_squares(workspace, JobSpec("shard_jobs:Refusing"), LocalExecutor())
    for target, complaint in (("nowhere:Job", "No module named 'nowhere'"), ("shard_jobs:Absent", "no attribute")):
        with pytest.raises(BadInputError, match=complaint):
            run_squares(workspace, JobSpec(target), LocalExecutor())
    with pytest.raises(BadInputError, match="unexpected keyword"):
        run_squares(workspace, squares(speed=3), LocalExecutor())


DRIVER = """
import sys
from shard_jobs import count, squares, tables
from assay.compute.local import LocalExecutor
from assay.compute.stage import import_stage, map_stage, open_stage
from assay.workspace import Workspace
workspace = Workspace.open(sys.argv[1])
spec = squares(log=sys.argv[2], held_from=30)
with open_stage(workspace, "squares", spec, {}, lambda: tables(12)) as stage:
    print(import_stage(workspace, stage, map_stage(stage, LocalExecutor(int(sys.argv[3]))), count, "r"), flush=True)
"""


def begun(log: Path) -> list[tuple[int, int]]:
    """Of each shard that was begun: its first number and the process."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(first), int(pid)) for first, pid, _ in map(str.split, lines)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_worker_that_was_given_up_changes_nothing_when_it_is_late(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, late = squares(), list[Unit]()
    result = pa.table({"number": [0], "square": [7]})
    with suppress(KeyboardInterrupt), open_stage(workspace, "squares", spec, {}, lambda: tables(2)) as stage:
        late += stage.units
        raise KeyboardInterrupt
    stages.remove_stage(stage.folder)

    def removed(folder: Path) -> None:
        for unit in late:
            with pytest.raises(BadInputError, match="no such folder"):
                jobs.write_table(result, Path(unit.result), {})
        rmtree(folder)

    rmtree = shutil.rmtree
    with open_stage(workspace, "squares", spec, {}, lambda: tables(2, rows=6)) as stage:
        for unit in map_stage(stage, LocalExecutor()):
            jobs.write_table(result, Path(late[unit.number].result), {})  # of the stage before
            assert pq.read_table(unit.result).num_rows == 6
        late += stage.units
        monkeypatch.setattr(shutil, "rmtree", removed)
    assert not any((workspace.root / stages.FOLDER).iterdir())


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_driver_resumes_where_it_stopped(workspace: Workspace, tmp_path: Path, workers: int) -> None:
    log = tmp_path / "log"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", DRIVER, str(workspace.root), str(log), str(workers)]
    first = subprocess.Popen(command, env=environment)
    wait_until(lambda: any(first == 30 for first, _ in begun(log)))
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait_until(lambda: not any(is_alive(pid) for _, pid in begun(log)))  # its workers end with it
    with workspace.store.unit() as db:
        ((imported,),) = db.execute("SELECT count(*) FROM imported_shards").fetchall()
    assert imported <= 6
    assert len(begun(log)) < 12
    (tmp_path / "released").touch()
    second = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    assert second.stdout.strip() == str({"rows": 60, "sum": sum(n**2 for n in range(60))})
    with workspace.store.unit() as db:
        assert db.execute("SELECT shard FROM imported_shards ORDER BY 1").fetchall() == [(n,) for n in range(12)]
    # what had a result was not mapped again
    again = [first for first, _ in begun(log)]
    assert set(again) == set(range(0, 60, 5))
    assert len(again) <= 12 + max(1, 2 * workers)


def test_a_result_counts_for_its_own_job_and_shard_alone(workspace: Workspace) -> None:
    with open_stage(workspace, "squares", squares(), {}, lambda: tables(1)) as stage:
        (unit,) = map_stage(stage, LocalExecutor())
        assert is_mapped(stage.spec.digest, unit)
        assert not is_mapped(squares(seconds=0.1).digest, unit)
        assert not is_mapped(JobSpec("shard_jobs:Squares", reads="another version").digest, unit)
        assert not is_mapped(stage.spec.digest, Unit(0, unit.shard, unit.result, 5, "another"))
        Path(unit.result).write_bytes(Path(unit.result).read_bytes()[:-9])
        assert not is_mapped(stage.spec.digest, unit)
        Path(unit.shard).write_bytes(b"not what was exported")
        with pytest.raises(BackendError, match="is not the shard that was written there"):
            list(map_stage(stage, LocalExecutor()))


def interrupted(workspace: Workspace) -> Path:
    def stop(stage: Stage) -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), open_stage(workspace, "squares", squares(), {}, lambda: tables(2)) as stage:
        stop(stage)
    return stage.folder


def test_another_versions_stage_is_not_finished(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = interrupted(workspace) / stages.MANIFEST
    begun = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(begun | {"assay": "0.0.1"}))
    with (
        pytest.raises(
            BadInputError, match=r"was started by Assay 0\.0\.1 .*remove the folder to start from the beginning"
        ),
        open_stage(workspace, "squares", squares(), {}, lambda: tables(2)),
    ):
        pass
    manifest.write_text(json.dumps(begun))
    with open_stage(workspace, "squares", squares(), {}, lambda: tables(9)) as stage:
        assert (stage.resumed, stage.rows) == (True, 10)  # the shards that were exported, not new ones
        with (
            pytest.raises(BadInputError, match="is making it; wait for it"),
            open_stage(workspace, "squares", squares(), {}, lambda: tables(9)),
        ):
            pass


def test_a_half_written_export_begins_anew(workspace: Workspace) -> None:
    def breaks() -> Iterator[pa.Table]:
        yield from tables(1)
        raise BackendError("the disk is full")

    with pytest.raises(AssayError), open_stage(workspace, "squares", squares(), {}, breaks):
        pass
    with open_stage(workspace, "squares", squares(), {}, lambda: tables(2)) as stage:
        assert (stage.resumed, len(stage.units)) == (False, 2)


@pytest.mark.parametrize("on", ["cluster", "local:two", "local:-1", "dask://x"])
def test_a_place_that_is_none_is_refused(on: str) -> None:
    with pytest.raises(BadInputError, match="is no place to work"):
        open_executor(on)


def test_a_tokenless_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(BadInputError, match="RAY_AUTH_MODE=token"):
        open_executor("ray://127.0.0.1:1")


def test_hashes_are_xxh3() -> None:
    assert jobs.hash_of(b"") == "99aa06d3014798d86001c324468d497f"  # published test vector
