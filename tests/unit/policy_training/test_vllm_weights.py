"""Weights on their way to vLLM, which vLLM is taken, and how much of a GPU it gets: all that needs neither."""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.errors import BackendError, BadInputError
from assay.models.published_weights import adapter_weights, merged_weights
from assay.planning.cards import CARDS, GIB
from assay.planning.engine_memory import MOST, WORK, EngineMemory, engine_share
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Lora, Policy
from assay_policy_training.core.sampling import Sampling
from assay_policy_training.plugins.samplers.auto import Auto, obstacles, vllm_plan
from assay_policy_training.plugins.samplers.transformers import Transformers, TransformersSampler
from assay_policy_training.plugins.samplers.vllm.buckets import FileCarrier, buckets
from assay_policy_training.plugins.samplers.vllm.in_process import Vllm
from assay_policy_training.plugins.samplers.vllm.installed import require_installed, vllm_version
from assay_policy_training.plugins.samplers.vllm.launch import Launch, launched
from assay_policy_training.plugins.samplers.vllm.memory import engine_memory
from assay_policy_training.plugins.samplers.vllm.policy_engine import adapter_rank, engine_dtype
from assay_policy_training.plugins.samplers.vllm.server import VllmServerSampler
from assay_policy_training.plugins.samplers.vllm.worker import PolicyWorker
from assay_policy_training.recipe.loading import load_recipe

CPU = torch.device("cpu")
SAMPLING = Sampling(max_new_tokens=8, max_prompt_tokens=64)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy("tiny", device=CPU, max_prompt_tokens=64, lora=Lora(rank=2))


def sent(tensors: Iterator[tuple[str, Tensor]], carrier: FileCarrier, size: int) -> tuple[dict[str, Tensor], int]:
    """What a worker has when all buckets are sent, and their number."""
    worker, number = PolicyWorker(), 0
    worker.begin_policy({"r": 2})
    for entries, bytes_ in buckets(tensors, carrier, size):
        worker.take_bucket(entries, bytes_, carrier.location())
        number += 1
    carrier.close()
    received: dict[str, Tensor] = worker.policy_tensors  # type: ignore[attr-defined]
    return received, number


@pytest.mark.parametrize("size", [1, 100_000, 2**30])
@pytest.mark.parametrize("where", ["memory", "folder"])
def test_a_worker_gets_the_policys_weights_bucket_by_bucket(
    policy: Policy, size: int, where: str, tmp_path: Path
) -> None:
    expected = dict(merged_weights(policy.model, dtype=torch.bfloat16))
    expected |= dict(adapter_weights(policy.model)) | {"scalar": torch.tensor(3), "mask": torch.tensor([True, False])}
    files = len(os.listdir("/proc/self/fd"))
    carrier = FileCarrier(tmp_path / "weights" if where == "folder" else None)
    received, number = sent(iter(expected.items()), carrier, size)
    assert received.keys() == expected.keys()
    for name, values in expected.items():
        assert received[name].dtype == values.dtype
        assert torch.equal(received[name], values), name
    total = sum(values.nbytes for values in expected.values())
    assert number == {1: len(expected), 2**30: 1}.get(size, number)
    assert number >= total // max(size, max(values.nbytes for values in expected.values()))
    assert not list((tmp_path / "weights").glob("*")), "buckets are left behind"
    assert len(os.listdir("/proc/self/fd")) == files


def test_what_the_engine_does_to_an_adapter_is_not_done_to_the_policys(policy: Policy) -> None:
    """vLLM scales an adapter in place."""
    worker = PolicyWorker()
    worker.begin_policy({"r": 2})
    worker.take_weights(adapter_weights(policy.model))
    kept = {name: values.clone() for name, values in adapter_weights(policy.model)}
    for values in worker.policy_tensors.values():  # type: ignore[attr-defined]
        values.add_(1)
    assert all(torch.equal(values, kept[name]) for name, values in adapter_weights(policy.model))


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="cannot pass the weights through"):
        FileCarrier(tmp_path / "file").buffer(8)


#: Llama 3.1 8B in bfloat16: 16.06 GB of weights; 2 * 32 layers * 8 heads * 128 * 2 bytes = 128 KiB a token.
EIGHT = EngineMemory.of(parameters=8_030_261_248, layers=32, heads=8, head_size=128, tokens=8704, itemsize=2)


def test_an_engines_memory() -> None:
    assert EIGHT.weights == 16_060_522_496
    assert EIGHT.row == 8704 * 128 * 1024
    assert EIGHT.needed(64) == EIGHT.weights + 64 * EIGHT.row + WORK


def test_an_engines_share_of_a_card() -> None:
    """LoRA keeps 15 GiB of bfloat16 base and little else while the engine generates; full weights keep 90 GiB."""
    h100, h200 = CARDS["h100"].memory, CARDS["h200"].memory
    lora = partial(engine_share, EIGHT, total=h100, free=h100 - 17 * GIB, reserved=GIB, field="sampler.kind")
    assert lora(rows=1) == pytest.approx((14.957 + 1.0625 + 1.5) / 79.2, abs=1e-3)
    held = lora(rows=64)  # 84.5 GiB would be needed: it gets what there is
    assert held == pytest.approx(0.95 * (79.2 - 18) / 79.2, abs=1e-3)
    assert engine_share(EIGHT, 1000, total=h200, free=h200, reserved=0, field="sampler.kind") == MOST
    with pytest.raises(BadInputError, match=r"'sampler.kind': vLLM needs at least 17.5 GiB here .* leaves 0.0 of 79.2"):
        engine_share(EIGHT, 64, total=h100, free=h100 - 30 * GIB, reserved=60 * GIB, field="sampler.kind")


def test_a_policys_engine_memory(policy: Policy) -> None:
    """Of the base alone: an engine with an adapter has no more than a row of it."""
    config = policy.model.config
    base = sum(p.numel() for name, p in policy.model.named_parameters() if ".lora_" not in name)
    size = config.head_dim if getattr(config, "head_dim", None) else config.hidden_size // config.num_attention_heads
    memory = engine_memory(policy, 72, "bfloat16")
    assert memory.weights == 2 * base
    assert memory.row == 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * size * 72


def test_an_engine_beside_4_bit_weights_has_its_own_whole(policy: Policy) -> None:
    pytest.importorskip("bitsandbytes")
    packed = Policy("tiny", device=policy.device, max_prompt_tokens=64, lora=Lora(4, base_weights="4bit"))
    assert engine_memory(packed, 72, "bfloat16").weights == engine_memory(policy, 72, "bfloat16").weights
    with pytest.raises(BadInputError, match=r"lora.base_weights.*all are trained"):
        load_recipe("grpo", ["lora.base_weights=4bit"])


def program(folder: Path, version: str) -> str:
    """In the place of the Python of an environment that has that vLLM."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nprint({version!r})\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("version", "taken", "words"),
    [
        ("0.32.0", True, "has vLLM 0.32.0"),
        ("0.40.1+cu130", True, "has vLLM 0.40.1"),
        ("0.31.9", False, "vLLM 0.31.9 .* is not supported for policies: supported are 0.32"),
        ("", False, "vLLM is not in the environment of .*python"),
    ],
)
def test_the_vllm_of_another_environment(
    version: str, taken: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = program(tmp_path, version)
    monkeypatch.setenv("ASSAY_VLLM_PYTHON", python)
    assert vllm_version() is None, "this environment has none"
    plan, why = vllm_plan()
    assert isinstance(plan, VllmServerSampler) == taken
    assert not isinstance(plan, VllmServerSampler) or (plan.launch, plan.python) == (True, python)
    assert re.search(words, why)
    if version == "0.31.9":
        with pytest.raises(BackendError, match=words):
            launched(Launch(python=python, model="a model that is not looked for"))


def test_only_an_environment_that_answers_that_it_has_no_vllm_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BackendError, match=r"vLLM is not in .*python"):
        require_installed(sys.executable)
    require_installed("/bin/false")  # it gives no answer
    (tmp_path / "vllm.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert vllm_version(sys.executable) is None
    require_installed(sys.executable)  # a distribution of another name


def test_the_default_sampler_says_what_it_is_and_why(
    policy: Policy, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_VLLM_PYTHON", raising=False)
    recipe = load_recipe("grpo")
    assert isinstance(recipe.sampler, Auto)
    with caplog.at_level(logging.INFO):
        assert isinstance(recipe.opened_sampler(policy), TransformersSampler)
    assert "sampler: transformers, since there is no GPU" in caplog.messages
    assert vllm_plan() == (None, "vLLM is not installed, and $ASSAY_VLLM_PYTHON names none")
    assert isinstance(Auto().chosen(policy, SAMPLING, Asynchrony()), Transformers)
    for asynchrony in (Asynchrony(actors=2), Asynchrony(lag=1)):
        assert "sampler.kind=vllm" in next(obstacles(Vllm(), policy, SAMPLING, asynchrony))
    monkeypatch.setattr(policy, "device", torch.device("cuda:1"))
    assert "on the first GPU" in next(obstacles(Vllm(), policy, SAMPLING, Asynchrony()))


def test_an_engines_format_and_the_room_for_its_adapter(policy: Policy) -> None:
    assert engine_dtype(policy, "auto") == "float32"
    assert engine_dtype(policy, "float16") == "float16"
    with pytest.raises(BadInputError, match=r"sampler.dtype': auto, float32, bfloat16, float16, not 'int8'"):
        engine_dtype(policy, "int8")
    assert [adapter_rank(rank) for rank in (1, 4, 16, 200)] == [1, 8, 16, 256]
    with pytest.raises(BadInputError, match="up to rank 512"):
        adapter_rank(513)


def test_a_launched_server_has_its_processs_gpu_and_nothing_of_torchrun() -> None:
    launch = Launch("python", "tiny", gpu=1, adapter_rank=8, memory_share=0.41, sleeps=True)
    line = " ".join(launch.command(81))
    assert "--enable-lora --max-loras 1 --max-lora-rank 8 --gpu-memory-utilization 0.41 --enable-sleep-mode" in line
    assert "--enforce-eager" not in line
    inherited = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "PYTHONPATH": "/ours", "HOME": "/home/a"}
    server = launch.environment(inherited)
    assert server["CUDA_VISIBLE_DEVICES"] == "1"
    assert not server.keys() & {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PYTHONPATH"}
    assert server["HOME"] == "/home/a"
    assert launch.environment({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b"})["CUDA_VISIBLE_DEVICES"] == "GPU-b"
    on_processor = Launch("python", "tiny")
    assert "--enforce-eager" in on_processor.command(81)
    assert "CUDA_VISIBLE_DEVICES" not in on_processor.environment({})
