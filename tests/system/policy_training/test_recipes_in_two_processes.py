"""Every shipped recipe trains in two processes, data parallel and FSDP2, or is refused in one line before its first
step: after two steps both processes have the same weights and the same memory of every plug-in."""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from test_recipes import CPU, FORCED, items, small, sources

from assay.errors import BadInputError
from assay.models.parallelism.distributed import torch_process_group
from assay.models.parallelism.strategy import SingleProcess, parallel_strategy
from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.protocols import Stateful
from assay_policy_training.recipe.loading import load_recipe, shipped_recipes
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.training.loop import PolicyLoop

PATIENCE_S = 900
#: What is refused, and the key of the recipe that the line names.
AHEAD = dict.fromkeys(("areal", "async_grpo", "laminar", "llama_rl"), "asynchrony.lag")
REFUSED = {"ddp": {**AHEAD, "t_ppo": "sampler"}}
REFUSED["fsdp"] = REFUSED["ddp"] | {"dynamic_weighting_gradient": "reward"}


def trainer(recipe: Recipe, folder: Path, model: Path, parallel: SingleProcess) -> PolicyLoop:
    policy = Policy(
        "tiny",
        device=CPU,
        max_prompt_tokens=128,
        with_reference=recipe.needs_reference,
        lora=recipe.lora,
        teacher=recipe.teacher,
    )
    prompts = recipe.source.open(items(FORCED.get(recipe.name, "")), seed=recipe.seed, policy=policy)
    policy.divide(parallel)
    return PolicyLoop(recipe, policy, prompts, sources(recipe, model), folder)


def digest(made: PolicyLoop, parallel: SingleProcess) -> str:
    """Of this process's copy of the whole weights and of what every plug-in remembers."""
    found = hashlib.sha256()
    for parameter in made.parameters.values():
        found.update(parallel.full(parameter).numpy().tobytes())
    memory = {name: p.state_dict() for name, p in made.plugins().items() if isinstance(p, Stateful)}
    found.update(json.dumps(memory, sort_keys=True).encode())
    return found.hexdigest()


def every_recipe(folder: Path, model: Path, kind: str, rank: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    found: dict[str, str] = {}
    with torch_process_group() as group:
        for name in shipped_recipes():
            parallel = parallel_strategy(kind, group, CPU)  # type: ignore[arg-type]
            place = folder / kind / name
            place.mkdir(parents=True, exist_ok=True)
            try:
                made = trainer(small(load_recipe(name)), place, model, parallel)
            except BadInputError as error:
                found[name] = f"refused: {error}"
                continue
            for row in made.train():
                assert all(math.isfinite(v) for v in row.values() if isinstance(v, float)), (name, row)
            found[name] = digest(made, parallel)
    (folder / f"{kind}-{rank}.json").write_text(json.dumps(found))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, tiny_reward_model: Path) -> dict[str, list[dict[str, str]]]:
    """By division, what each process has of each recipe."""
    folder = tmp_path_factory.mktemp("recipes")
    command = [sys.executable, __file__, str(folder), str(tiny_reward_model)]
    environment: dict[str, Any] = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        kind: [json.loads((folder / f"{kind}-{rank}.json").read_text()) for rank in range(2)]
        for kind in ("ddp", "fsdp")
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_two_processes_agree_about_every_recipe(kind: str, found: dict[str, list[dict[str, str]]]) -> None:
    first, second = found[kind]
    assert set(first) == set(shipped_recipes())
    assert first == second
    refused = {name: text for name, text in first.items() if text.startswith("refused")}
    assert refused.keys() == REFUSED[kind].keys()
    for name, text in refused.items():
        assert REFUSED[kind][name] in text


if __name__ == "__main__":
    torch.set_num_threads(1)
    trainer(small(load_recipe("grpo")), Path(sys.argv[1]), Path(sys.argv[2]), SingleProcess()).train(1)
    importlib.import_module("torch.distributed.fsdp")
    forked = multiprocessing.get_context("fork")
    failed = False
    for kind in ("ddp", "fsdp"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        together = [
            forked.Process(target=every_recipe, args=(Path(sys.argv[1]), Path(sys.argv[2]), kind, rank))
            for rank in range(2)
        ]
        for process in together:
            process.start()
        for process in together:
            process.join(PATIENCE_S)
            process.kill()
            process.join()
            failed |= process.exitcode != 0
    sys.exit(failed)
