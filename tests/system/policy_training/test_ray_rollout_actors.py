"""Rollout actors in a Ray cluster of two nodes of this machine: the run of local ones, also when one is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from async_training import ITEMS, Holding, recipe_with, save_model, trainer
from ray_nodes import two_nodes

from assay.errors import BadInputError

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
PATIENCE_S = 300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with two_nodes() as nodes:
        yield nodes


def test_a_cluster_trains_what_this_machine_does(cluster: Any, tmp_path: Path) -> None:
    """Weights through the object store; one of two actors is held in the middle of a group and killed there."""
    model, marker = save_model(tmp_path / "model"), tmp_path / "marker"
    holding = Holding(marker=str(marker), number=ITEMS[0].meta["number"])
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (marker.is_file() and marker.read_text()) and not ended.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not ended.is_set():
            killed.append(int(marker.read_text()))
            os.kill(killed[0], signal.SIGKILL)

    found = {}
    for name, actors, on in (("ray", 2, f"ray:{cluster.address}"), ("local", 1, "local")):
        recipe = replace(recipe_with(lag=2, actors=actors), sampler=holding)
        made = trainer(recipe, tmp_path / name, model, on=on)
        killer = threading.Thread(target=kill, daemon=True)
        if name == "ray":
            killer.start()
        with closing(made):
            made.train()
        if name == "ray":
            ended.set()
            killer.join()
        rows = [json.loads(line) for line in (tmp_path / name / "rollouts.jsonl").read_text().splitlines()]
        found[name] = rows, {key: value.detach().clone() for key, value in made.parameters.items()}
    assert killed
    assert found["ray"][0] == found["local"][0]
    for key, value in found["local"][1].items():
        assert torch.equal(value, found["ray"][1][key]), key


def test_a_tokenless_cluster_is_refused_before_work_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    with pytest.raises(BadInputError, match="without a token"):
        trainer(recipe_with(actors=1), tmp_path, on="ray:127.0.0.1:1")
    with pytest.raises(BadInputError, match="'moon' is no place to work"):
        trainer(recipe_with(actors=1), tmp_path, on="moon")
    with pytest.raises(BadInputError, match="there are no actors to place"):
        trainer(recipe_with(lag=1), tmp_path, on="ray:127.0.0.1:1")
