"""Rollout actors with a vLLM server each: rows are of the weights they are stamped with, and a server that is killed
loses and doubles no row.

Needs a vLLM environment: ASSAY_VLLM_PYTHON names its Python (docs/policy-training/samplers.md). What needs none is in
`test_vllm_requests.py`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import async_training
import pytest
import torch
from async_training import STEPS, recipe_with, trainer
from torch import Tensor

from assay.errors import BackendError
from assay.models.tiny import make_tiny
from assay.runs.callbacks import StepCallback
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.samplers.vllm.launch import Launch, LaunchedServer, launched
from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.relay import load_weights
from assay_policy_training.training.loop import PolicyLoop

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


def recipe_of(servers: list[LaunchedServer], **asynchrony: Any) -> Recipe:
    sampler = VllmServerSampler(urls=tuple(server.url for server in servers))
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


def test_rows_are_of_their_weights_and_a_killed_server_loses_none(
    servers: list[LaunchedServer], model: str, tmp_path: Path
) -> None:
    made = trainer(recipe_of(servers, staleness=1), tmp_path, model)
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
    uids = [json.loads(line)["uid"] for line in (tmp_path / "rollouts.jsonl").read_text().splitlines()]
    assert uids == [f"{step}.{group}" for step in range(1, STEPS + 1) for group in range(4) for _ in range(3)]
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
    assert not list((tmp_path / "weights").iterdir())
    assert not (tmp_path / "engines").exists(), "weights are left behind"


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
