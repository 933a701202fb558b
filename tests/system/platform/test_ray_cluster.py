"""Shards on a Ray cluster of two nodes of this machine: the tables of one process, also when workers and nodes die."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from ray_nodes import two_nodes
from shard_jobs import run_squares, squares, tables

from assay import __version__
from assay.compute.actors import ActorLostError
from assay.compute.executor import open_actor, open_executor, put_object
from assay.compute.job import JobSpec
from assay.compute.stage import map_stage, open_stage
from assay.errors import BackendError, BadInputError
from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.hygiene.contamination.benchmarks import add_benchmark
from assay_pipelines.hygiene.contamination.check import CheckConfig, check_benchmarks
from assay_pipelines.hygiene.near_duplicates import documents
from assay_pipelines.hygiene.near_duplicates.search import NearDuplicateConfig, find_near_duplicates

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as nodes:
        yield nodes


def test_a_cluster_gives_the_bytes_of_one_process(cluster: Any, workspace: Workspace, tmp_path: Path) -> None:
    executor = open_executor(f"ray:{cluster.address}")
    log = tmp_path / "log"
    spec = squares(log=str(log), together=2)
    assert run_squares(workspace, spec, executor, 8) == run_squares(workspace, spec, open_executor(), 8)
    begun = [line.split() for line in log.read_text().splitlines()]
    workers = {pid for _, pid, _ in begun} - {str(os.getpid())}
    assert len(workers) == 2
    assert {opened for *_, opened in begun} == {"1"}


@pytest.mark.slow
def test_killed_workers_and_nodes_lose_and_double_nothing(cluster: Any, workspace: Workspace, tmp_path: Path) -> None:
    log, spare = tmp_path / "log", cluster.add_node(num_cpus=1, include_dashboard=False)
    stopped = threading.Event()

    def harm() -> None:
        killed = False
        while not stopped.is_set():
            lines = log.read_text().splitlines() if log.exists() else []
            if len(lines) >= 3 and not killed:
                killed = True
                os.kill(int(lines[-1].split()[1]), signal.SIGKILL)
            if len(lines) >= 6:
                cluster.remove_node(spare, allow_graceful=False)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=harm)
    thread.start()
    try:
        spec = squares(seconds=0.06, log=str(log))
        counts, tables = run_squares(workspace, spec, open_executor(f"ray:{cluster.address}"), 16)
    finally:
        stopped.set()
        thread.join()
    assert counts == {"rows": 80, "sum": sum(n**2 for n in range(80))}
    assert tables == run_squares(workspace, squares(seconds=0.06, log=str(log)), open_executor(), 16)[1]


@pytest.mark.slow
def test_an_answer_that_waits_for_a_slow_reader_is_in_time(
    cluster: Any, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from assay.compute import ray_cluster

    drivers: list[Any] = []
    overdue = ray_cluster._Driver._overdue

    def recorded(driver: Any, now: float) -> Any:
        drivers.append(driver)
        return overdue(driver, now)

    passed, clock = 0.0, time.monotonic
    monkeypatch.setattr(ray_cluster._Driver, "_overdue", recorded)
    monkeypatch.setattr(ray_cluster, "time", SimpleNamespace(monotonic=lambda: clock() + passed, sleep=time.sleep))
    log = tmp_path / "log"
    spec = squares(log=str(log), together=2)
    with open_stage(workspace, "squares", spec, {}, lambda: tables(6)) as stage:
        for _ in map_stage(stage, open_executor(f"ray:{cluster.address}")):
            calls = [slot.call for slot in drivers[-1]._busy() if slot.unit is not None]
            answered, _ = ray.wait(calls, num_returns=len(calls), timeout=120) if calls else ([], [])
            assert answered == calls
            passed += 10 * ray_cluster.HELLO_S  # longer than any deadline
    begun = [line.split() for line in log.read_text().splitlines()]
    assert (len(begun), len({pid for _, pid, _ in begun})) == (6, 2)


@pytest.mark.slow
def test_an_actor_gets_what_the_object_store_has_and_is_lost_once_it_is_killed(cluster: Any, tmp_path: Path) -> None:
    on = f"ray:{cluster.address}"
    with closing(open_actor(on, "shard_jobs:Held", {}, folder=tmp_path)) as actor:
        assert actor.call("total", put_object(on, [1, 2, 3])) == 6
        with pytest.raises(BadInputError, match="nothing to add"):
            actor.call("total", [])
        os.kill(actor.call("pid"), signal.SIGKILL)
        with pytest.raises(ActorLostError, match="an actor of the Ray cluster is gone"):
            actor.call("pid")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_hygiene_on_a_cluster_finds_what_this_process_finds(
    cluster: Any, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow: its workers import what hygiene needs. Shards on a cluster are above, hygiene's shards in processes of this
    machine in `tests/unit/pipelines`."""
    monkeypatch.setattr(documents, "PAGE", 16)
    leak = " ".join(f"leak{n}" for n in range(20))
    texts = [" ".join(f"w{(7 * n + k) % 991}" for k in range(40)) for n in range(60)]
    rows = [
        {"row": n, "messages": [{"role": "user", "content": f"{leak if n % 10 == 0 else ''} {texts[n - n % 2]} {n}"}]}
        | {"first": texts[n - n % 2][7:], "second": f"no {texts[n - n % 2]}", "label": "first", "source": "test"}
        | {"record_id": str(n)}
        for n in range(60)
    ]
    (tmp_path / "b.txt").write_text(leak)
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
    add_benchmark(workspace, "b", tmp_path / "b.txt", None)
    tables, reports = [], []
    for on in ("local", f"ray:{cluster.address}"):
        executor = open_executor(on)
        (check,) = check_benchmarks(workspace, CheckConfig(encoder="hashing"), on, page=25, executor=executor)
        near = find_near_duplicates(workspace, NearDuplicateConfig(), on, executor=executor)
        reports.append((check.hits, check.responses, check.tiers, near))
        with workspace.store.unit() as db:
            hits = "SELECT * EXCLUDE (check_id) FROM contamination_hits WHERE check_id = ? ORDER BY ALL"
            members = "SELECT * EXCLUDE (run_id) FROM near_duplicates WHERE run_id = ? ORDER BY ALL"
            tables.append((db.execute(hits, [check.check_id]).fetchall(), db.execute(members, [on]).fetchall()))
    assert reports[0] == reports[1]
    assert tables[0] == tables[1]
    assert reports[0][0] == 6
    assert reports[0][3].extra >= 20


@pytest.mark.slow
def test_what_is_wrong_is_one_line_before_work_starts(
    cluster: Any, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from assay.compute import ray_cluster

    executor = open_executor(f"ray:{cluster.address}")
    with pytest.raises(BadInputError, match="No module named 'nowhere'"):
        run_squares(workspace, JobSpec("nowhere:Job"), executor)
    with pytest.raises(BadInputError, match="field 'text': no such column"):
        run_squares(workspace, JobSpec("shard_jobs:Refusing"), executor)
    seen = {"node": "n1", "assay": __version__, "ray": ray.__version__, "python": platform.python_version()}
    probe = tmp_path / "probe"
    for change, complaint in (
        ({}, None),
        ({"auth": ""}, "the node n1 was started without RAY_AUTH_MODE=token"),
        ({"assay": "0.1"}, f"the node n1 has Assay 0.1, this machine {__version__}"),
        ({"python": "3.9.1"}, "the node n1 has Python 3.9.1"),
        ({"sees": None}, f"the node n1 does not see {tmp_path}"),
    ):
        problem = ray_cluster.unlike(seen | {"auth": "token", "sees": "probe"} | change, probe)
        assert problem == complaint or (problem and complaint and problem.startswith(complaint))
    monkeypatch.setattr(ray_cluster, "__version__", "9.9")
    with pytest.raises(BadInputError, match=f"has Assay {__version__}, this machine 9.9"):
        run_squares(workspace, squares(), executor)
    ray.shutdown()
    monkeypatch.setattr(ray, "init", pytest.fail)  # which would try for a minute
    with pytest.raises(BackendError, match=r"the Ray cluster at 127\.0\.0\.1:9 cannot be reached"):
        run_squares(workspace, squares(), open_executor("ray:127.0.0.1:9"))
