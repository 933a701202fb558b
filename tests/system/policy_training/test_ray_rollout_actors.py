"""Rollout actors in a Ray cluster of two nodes of this machine: the run of local ones, also when one or its node is
killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from async_training import ITEMS, Holding, recipe_with, save_model, trainer
from ray_nodes import two_nodes
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.plugins.protocols import SamplerPlan

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
PATIENCE_S = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(tmp_path_factory.mktemp("models") / "model")


def trained(
    sampler: SamplerPlan, folder: Path, model: str, actors: int, on: str
) -> tuple[list[Any], dict[str, Tensor]]:
    """The rows and the weights of a run with lag 2."""
    made = trainer(replace(recipe_with(lag=2, actors=actors), sampler=sampler), folder, model, on=on)
    with closing(made):
        made.train()
    rows = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    assert not list(folder.glob(".probe*"))
    return rows, {key: value.detach().clone() for key, value in made.parameters.items()}


@pytest.fixture(scope="module")
def local(model: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, Tensor]]:
    """A run of one actor of this machine, which nothing disturbs."""
    return trained(recipe_with().sampler, tmp_path_factory.mktemp("local"), model, 1, "local")


def trained_while_held(
    cluster: Any, holding: Holding, folder: Path, model: str, kill: Callable[[int], None]
) -> tuple[list[Any], dict[str, Tensor]]:
    """With two actors of the cluster. `kill`: given the process of one that is held in the middle of a group."""
    marker, deadline = Path(holding.marker), time.monotonic() + PATIENCE_S
    with ThreadPoolExecutor(1) as thread:
        run = thread.submit(trained, holding, folder, model, 2, f"ray:{cluster.address}")
        while not (marker.is_file() and marker.read_text()):
            assert not run.done(), run.result()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        kill(int(marker.read_text()))
        return run.result()


def assert_same(one: tuple[list[Any], dict[str, Tensor]], other: tuple[list[Any], dict[str, Tensor]]) -> None:
    assert one[0] == other[0]
    for key, value in other[1].items():
        assert torch.equal(value, one[1][key]), key


@pytest.mark.slow
def test_a_cluster_trains_what_this_machine_does(cluster: Any, model: str, local: Any, tmp_path: Path) -> None:
    """Weights through the object store; one of two actors is killed. Slow: `test_ray_cluster.py` has an actor of a
    cluster that is killed, `test_rollout_actors.py` a training whose actor is."""
    holding = Holding(marker=str(tmp_path / "marker"), number=ITEMS[0].meta["number"])
    run = trained_while_held(cluster, holding, tmp_path / "ray", model, lambda pid: os.kill(pid, signal.SIGKILL))
    assert_same(run, local)


@pytest.mark.slow
def test_a_killed_node_loses_and_doubles_no_row(cluster: Any, model: str, local: Any, tmp_path: Path) -> None:
    """Its actor has a group; the node that is started in its place gets another actor."""
    [node] = cluster.worker_nodes
    raylet = cluster.head_node.all_processes["raylet"][0].process.pid
    holding = Holding(marker=str(tmp_path / "marker"), number=None, spared=raylet)

    def kill(pid: int) -> None:
        assert raylet != int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(num_cpus=1, include_dashboard=False)

    assert_same(trained_while_held(cluster, holding, tmp_path / "ray", model, kill), local)


def test_a_tokenless_cluster_is_refused_before_work_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(BadInputError, match="without a token"):
        trainer(recipe_with(actors=1), tmp_path, on="ray:127.0.0.1:1")
    with pytest.raises(BadInputError, match="'moon' is no place to work"):
        trainer(recipe_with(actors=1), tmp_path, on="moon")
    with pytest.raises(BadInputError, match="there are no actors to place"):
        trainer(recipe_with(lag=1), tmp_path, on="ray:127.0.0.1:1")
