"""The driver's decisions without a cluster: which workers are hired, which are too late, how long a unit is tried."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")

from assay.compute import ray_cluster
from assay.compute.job import JobSpec, Unit
from assay.errors import BackendError


@pytest.fixture
def silent_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call is ever answered."""
    stand_in = SimpleNamespace(kill=lambda actor, no_restart: None, wait=lambda calls, **_: ([], calls))
    monkeypatch.setattr(ray_cluster, "ray", stand_in)


def hired(driver: ray_cluster._Driver) -> ray_cluster._Slot:
    actor: Any = SimpleNamespace(map=SimpleNamespace(remote=lambda spec, unit: object()))
    slot = ray_cluster._Slot(actor, None, 0.0, mapped=1)
    driver.slots.append(slot)
    driver._assign(slot)
    return slot


def test_a_unit_that_no_worker_ends_is_given_more_time_and_ends_the_command(silent_ray: None) -> None:
    unit = Unit(3, "shards/00003.parquet", "results/00003.parquet", 1, "")
    driver = ray_cluster._Driver(JobSpec("module:Job"), Path("probe"), 0, deque([unit]), {3}, seconds=[1.0] * 5)
    for lost in range(ray_cluster.TRIES):
        slot = hired(driver)
        assert slot.unit == unit
        deadline = ray_cluster.LEAST_DEADLINE_S * 2**lost
        assert driver._overdue(slot.since + deadline - 1) == []
        assert driver._overdue(slot.since + deadline + 1) == [slot]
        if lost < ray_cluster.TRIES - 1:
            driver._lose(slot)
            assert list(driver.waiting) == [unit]
    with pytest.raises(BackendError, match=r"shards/00003\.parquet: 5 workers were lost over it"):
        driver._lose(slot)


def test_an_error_without_words_is_said_by_its_kind() -> None:
    from ray.exceptions import RayTaskError

    error = RayTaskError("map", "traceback", AssertionError())
    assert str(ray_cluster._cause(error)) == "AssertionError"


@pytest.mark.parametrize(
    ("gpus_of_nodes", "of_a_worker", "workers"), [((8, 8), 1.0, 16), ((0, 0), 0.0, 64), ((0, 8), 1.0, 8)]
)
def test_a_worker_takes_a_gpu_where_nodes_have_any(
    gpus_of_nodes: tuple[int, ...], of_a_worker: float, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each core's worker would load its model onto the first GPU. A head without slots does not count."""
    hired_with: list[float] = []

    def remote(**options: Any) -> Any:
        hired_with.append(options["num_gpus"])
        actor = SimpleNamespace(hello=SimpleNamespace(remote=lambda probe: object()))
        return lambda worker: SimpleNamespace(remote=lambda: actor)

    nodes = [{"Alive": True, "Resources": {"CPU": 32.0} | ({"GPU": n} if n else {})} for n in gpus_of_nodes]
    nodes.append({"Alive": True, "Resources": {"GPU": 8.0}})
    nodes.append({"Alive": False, "Resources": {"CPU": 32.0, "GPU": 8.0}})
    monkeypatch.setattr(ray_cluster, "ray", SimpleNamespace(nodes=lambda: nodes, remote=remote))
    driver = ray_cluster._Driver(JobSpec("module:Job", gpus=1.0), Path("probe"), 0, deque(), set(range(100)))
    driver._hire()
    assert (hired_with, len(driver.slots)) == ([of_a_worker], workers)
