"""Rollout actors with a vLLM server each: rows are of the weights they are stamped with, and a server that is killed
loses and doubles no row; also where the trainer is two processes (gloo, on the CPU).

Needs a vLLM environment: ASSAY_VLLM_PYTHON names its Python (docs/policy-training/samplers.md). What needs none is in
`test_vllm_requests.py`. `python test_vllm_actors.py FOLDER MODEL ddp|fsdp URL URL` forks the two processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import async_training
import pytest
import torch
from async_training import STEPS, recipe_with, trainer
from torch import Tensor
from torch.distributed.tensor import DTensor
from two_processes import PATIENCE_S, error_file, launch

from assay.errors import BackendError
from assay.models.parallelism.distributed import torch_process_group
from assay.models.parallelism.strategy import parallel_strategy
from assay.models.tiny import make_tiny
from assay.runs.callbacks import StepCallback
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.samplers.vllm.launch import Launch, LaunchedServer, launched
from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.relay import load_weights
from assay_policy_training.training.loop import PolicyLoop

SUPPORT = str(Path(__file__).resolve().parents[2] / "support")
ENVIRONMENT = "ASSAY_VLLM_PYTHON"
TOLERANCE = 1e-3
KILLED_AFTER = 2  #: steps

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Heads of 32: vLLM's CPU attention wants no less."""
    folder = tmp_path_factory.mktemp("vllm-policies") / "tied"
    folder.mkdir()
    make_tiny(folder, hidden=128)
    return str(folder)


@pytest.fixture(scope="module")
def servers(model: str) -> Iterator[list[LaunchedServer]]:
    named = os.environ.get(ENVIRONMENT)
    if not named:
        pytest.skip(f"no vLLM environment: set {ENVIRONMENT} to its Python")
    launch = Launch(python=named, model=model, max_model_len=512, arguments=("--max-num-seqs", "16"))
    with ThreadPoolExecutor(2) as threads:
        started = list(threads.map(launched, [launch] * 2))
    yield started
    for server in started:
        server.stop()


def recipe_of(urls: Sequence[str], **asynchrony: Any) -> Recipe:
    sampler = VllmServerSampler(urls=tuple(urls))
    return replace(recipe_with(actors=2, **asynchrony), sampler=sampler)


def noted(made: PolicyLoop) -> tuple[list[RolloutBatch], dict[int, dict[str, Tensor]]]:
    """What a trainer collects, and what it publishes by version, from now on."""
    pool, collect = made.collector.pool, made.collector.collect
    assert pool is not None
    put, batches, published = pool.relay.put, list[RolloutBatch](), dict[int, dict[str, Tensor]]()

    def collected(*arguments: Any, **settings: Any) -> Any:
        rollouts = collect(*arguments, **settings)
        batches.append(rollouts.batch)
        return rollouts

    def kept(key: str, weights: dict[str, Tensor]) -> Any:
        published[made.updates] = {name: value.clone() for name, value in weights.items()}
        return put(key, weights)

    made.collector.collect = collected  # type: ignore[method-assign]
    pool.relay.put = kept  # type: ignore[method-assign, assignment]
    return batches, published


def take_part(model: str, kind: Any, urls: Sequence[str], folder: Path) -> None:
    """What each of two processes does: the whole run. The first one writes what was collected and published."""
    with torch_process_group() as group:
        parallel = parallel_strategy(kind, group, torch.device("cpu"))
        made = trainer(recipe_of(urls, staleness=1), folder, model, parallel=parallel)
        notes = noted(made)
        with closing(made):
            made.train()
        held = sum(p.to_local().numel() if isinstance(p, DTensor) else p.numel() for p in made.parameters.values())
        (folder / f"held-{group.rank}.json").write_text(json.dumps(held))
        if parallel.main:
            torch.save(notes, folder / "notes.pt")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_trainer_of_two_processes_has_actors_with_servers(
    servers: list[LaunchedServer], model: str, tmp_path: Path, kind: str
) -> None:
    command = [sys.executable, __file__, str(tmp_path), model, kind, *(server.url for server in servers)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([SUPPORT, environment.get("PYTHONPATH", "")])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, 0], [error_file(tmp_path, kind, rank).read_text() for rank in range(2)]
    assert_every_group_once(tmp_path)
    assert_of_their_weights(model, *torch.load(tmp_path / "notes.pt", weights_only=False))
    whole = sum(
        p.numel() for p in Policy(model, device=torch.device("cpu"), max_prompt_tokens=128).trainable().values()
    )
    held = [json.loads((tmp_path / f"held-{rank}.json").read_text()) for rank in range(2)]
    assert held == [whole, whole] if kind == "ddp" else sum(held) == whole


def test_rows_are_of_their_weights_and_a_killed_server_loses_none(
    servers: list[LaunchedServer], model: str, tmp_path: Path
) -> None:
    made = trainer(recipe_of([server.url for server in servers], staleness=1), tmp_path, model)
    batches, published = noted(made)

    def on_step(row: Any) -> None:
        if row["step"] == KILLED_AFTER:
            os.killpg(servers[0].process.pid, signal.SIGKILL)

    with closing(made):
        rows = made.train(callbacks=[StepCallback(on_step)])
        assert made.collector.pool is not None
        assert [actor is None for actor in made.collector.pool._actors] == [True, False]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert all(row["staleness_max"] <= 1 for row in rows)
    assert_every_group_once(tmp_path)
    assert_of_their_weights(model, batches, published)
    assert not (tmp_path / "weights").exists(), "weights are left behind"


def assert_every_group_once(folder: Path) -> None:
    uids = [json.loads(line)["uid"] for line in (folder / "rollouts.jsonl").read_text().splitlines()]
    assert uids == [f"{step}.{group}" for step in range(1, STEPS + 1) for group in range(4) for _ in range(3)]


def assert_of_their_weights(model: str, batches: list[RolloutBatch], published: dict[int, dict[str, Tensor]]) -> None:
    """All log-probs are those of the weights that rows are stamped with, and not those of others."""
    policy = Policy(model, device=torch.device("cpu"), max_prompt_tokens=128)
    gaps: dict[bool, float] = {}
    for batch in batches:
        for version in sorted(set(batch.version.tolist())):
            part = batch.select(torch.nonzero(batch.version == version).squeeze(1).tolist())
            for stamped in (True, False):
                load_weights(policy, published[version if stamped else STEPS - 1 - version])
                with torch.no_grad():
                    scores = policy.scores(part, temperature=1.0, prune_log_ratio=None)
                gap = float((scores.logp - part.logp_mu)[part.mask].abs().max())
                gaps[stamped] = max(gaps.get(stamped, 0.0), gap)
    assert gaps[True] < TOLERANCE < gaps[False], gaps


def test_a_server_that_was_started_again_is_not_taken_for_the_old_one(
    servers: list[LaunchedServer], model: str, tmp_path: Path
) -> None:
    """Its worker has no record of the weights: what it generates is not theirs."""
    policy = Policy(model, device=torch.device("cpu"), max_prompt_tokens=128)
    sampler = VllmServerSampler(url=servers[1].url).open(policy, recipe_with().sampling)
    sampler.publish(policy, 0)
    other = VllmServerSampler(url=servers[1].url).open(policy, recipe_with().sampling)
    other.publish(policy, 0)  # as a start would, this replaces what the first has loaded
    with pytest.raises(BackendError, match="without the weights that it was given"):
        sampler.rollout(async_training.ITEMS[:1], 2, seed=0, version=0)


if __name__ == "__main__":
    path, name, division, *addresses = sys.argv[1:]
    print(json.dumps(launch(division, partial(take_part, name, division, addresses), Path(path))))
