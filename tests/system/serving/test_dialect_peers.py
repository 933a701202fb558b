"""The peers' own client code against the server, where it is at hand.

`ASSAY_PEERS`: a folder with the unpacked wheels of openrlhf and verl (`pip download --no-deps`, unzip), each in a
folder of its name. Only the module with the client is imported, and what it imports besides is replaced by empty
modules: its requests and its reading of the reply are the real ones.
`ASSAY_VLLM_PYTHON`: a Python with vLLM, whose server answers the same requests for the same checkpoint.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest

from assay.domain import Message
from assay.score import Score
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server
from assay_serving.scorer import ScoreItem

PROMPT = (Message("user", "Name a metal."),)
START_S = 240


class Absent(ModuleType):
    """A module that is imported and not used: whatever is taken from it is a class without contents."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return type(name, (), {"__init__": lambda self, *args, **options: None})


def client_module(
    monkeypatch: pytest.MonkeyPatch, package: str, pattern: str, absent: dict[str, dict[str, Any]]
) -> Any:
    """The module of an unpacked wheel, alone. Skips where there is none."""
    pytest.importorskip("aiohttp")
    folder = os.environ.get("ASSAY_PEERS")
    found = next(Path(folder, package).glob(f"**/{pattern}"), None) if folder else None
    if found is None:
        pytest.skip(f"no client of {package}: set ASSAY_PEERS")
    for name, contents in absent.items():
        stand_in = Absent(name)
        vars(stand_in).update(contents)
        monkeypatch.setitem(sys.modules, name, stand_in)
    spec = importlib.util.spec_from_file_location("peer.client", found)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "peer.client", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def scorer(tiny_reward_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="rm"))


@pytest.fixture(scope="module")
def server(scorer: TransformersScorer) -> Iterator[RunningServer]:
    with running_server({"rm": scorer}) as running:
        yield running


@pytest.fixture(scope="module")
def reward(scorer: TransformersScorer) -> float:
    [score] = scorer.score([ScoreItem(PROMPT, "Gold.")])
    assert isinstance(score, Score)
    return score.reward


def test_openrlhfs_executor_gets_its_reward(
    server: RunningServer, scorer: TransformersScorer, reward: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = {"openrlhf": {}, "openrlhf.utils": {}, "openrlhf.utils.logging_utils": {"init_logger": logging.getLogger}}
    client = client_module(monkeypatch, "openrlhf", "openrlhf/utils/agent.py", absent)
    tokenizer = scorer.renderer.tokenizer

    class Policy:
        async def generate(self, ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
            made = tokenizer("Gold.<|im_end|>", add_special_tokens=False).input_ids
            return SimpleNamespace(outputs=[SimpleNamespace(token_ids=made, finish_reason="stop", logprobs=None)])

    executor = client.SingleTurnAgentExecutor([f"{server.url}/get_reward", f"{server.url}/get_reward?model=rm"])
    prompt = scorer.renderer.render(PROMPT)
    for _ in range(2):  # its URLs take turns
        found = asyncio.run(
            executor.execute(prompt, None, SimpleNamespace(max_tokens=32, logprobs=None), 512, tokenizer, Policy())
        )
        assert found["reward"] == found["scores"] == [pytest.approx(reward, abs=1e-5)]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_verls_reward_loop_gets_its_reward(
    server: RunningServer, scorer: TransformersScorer, reward: float, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    import torch

    names = (
        "ray ray.actor omegaconf tensordict verl verl.protocol verl.single_controller verl.single_controller.ray "
        "verl.single_controller.ray.base verl.trainer verl.trainer.ppo verl.trainer.ppo.reward verl.utils "
        "verl.utils.fs verl.utils.ray_utils peer peer.reward_model"
    )
    client = client_module(monkeypatch, "verl", "reward_loop/reward_loop.py", {name: {} for name in names.split()})
    worker = object.__new__(client.RewardLoopWorker)
    worker.reward_router_address = server.url.removeprefix("http://")
    worker.reward_model_tokenizer = worker.input_tokenizer = scorer.renderer.tokenizer
    model = SimpleNamespace(rollout=SimpleNamespace(name=engine), model_path="rm")
    worker.config = SimpleNamespace(reward=SimpleNamespace(reward_model=model))
    ids = torch.tensor(scorer.renderer.tokenizer("Gold.<|im_end|>", add_special_tokens=False).input_ids)
    row = SimpleNamespace(
        non_tensor_batch={"raw_prompt": [message.to_dict() for message in PROMPT]},
        batch={"responses": ids, "attention_mask": torch.ones(len(ids) + 3, dtype=torch.long)},
    )
    assert asyncio.run(worker.compute_score_disrm([row])) == {"reward_score": pytest.approx(reward, abs=1e-5)}


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small scalar checkpoint with heads of 32: vLLM's CPU attention wants no less."""
    import torch

    from assay.models.loading import load_scalar_model, load_tokenizer
    from assay.models.quiet import quiet_transformers
    from assay.models.tiny import make_tiny

    root = tmp_path_factory.mktemp("wide")
    make_tiny(root / "base", hidden=128)
    tokenizer = load_tokenizer(str(root / "base"))
    model = load_scalar_model(
        str(root / "base"), tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True
    )
    with quiet_transformers():
        model.save_pretrained(root / "rm")
        tokenizer.save_pretrained(root / "rm")
    return root / "rm"


@pytest.fixture(scope="module")
def wide_scorer(wide_model: Path) -> TransformersScorer:
    return TransformersScorer.load(ModelConfig(str(wide_model), device="cpu", served_as="rm", max_length=512))


@pytest.fixture(scope="module")
def wide_server(wide_scorer: TransformersScorer) -> Iterator[RunningServer]:
    with running_server({"rm": wide_scorer}) as running:
        yield running


@pytest.fixture(scope="module")
def vllm_server(wide_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python = os.environ.get("ASSAY_VLLM_PYTHON")
    if not python:
        pytest.skip("no vLLM: set ASSAY_VLLM_PYTHON")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(wide_model)]
    command += ["--served-model-name", "rm", "--host", "127.0.0.1", "--port", str(port), "--runner", "pooling"]
    command += ["--convert", "classify", "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "8"]
    command += ["--enforce-eager", "--no-enable-prefix-caching"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "0-1", "HF_HUB_OFFLINE": "1"}
    log = tmp_path_factory.mktemp("vllm") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | settings | {"VLLM_NO_USAGE_STATS": "1"}
        )
        try:
            deadline = time.monotonic() + START_S
            url = f"http://127.0.0.1:{port}"
            while True:
                assert process.poll() is None, log.read_text(errors="replace")[-3000:]
                assert time.monotonic() < deadline, "vLLM did not start"
                try:
                    httpx.get(url + "/health", timeout=2).raise_for_status()
                    break
                except httpx.HTTPError:
                    time.sleep(0.5)
            yield url
        finally:
            process.terminate()
            process.wait(60)


def shape(value: Any) -> Any:
    """The types of a reply by name, numbers alike."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "number" if isinstance(value, int | float) else type(value).__name__


@pytest.mark.vllm
def test_vllms_own_server_answers_the_same(
    vllm_server: str, wide_server: RunningServer, wide_scorer: TransformersScorer
) -> None:
    server, scorer = wide_server, wide_scorer
    text = scorer.renderer.render(PROMPT, "Gold.")
    other = scorer.renderer.render(PROMPT, "Glass is not one of them.")
    ids = list(scorer.renderer.encode(PROMPT, "Gold.").ids)
    messages = [*(message.to_dict() for message in PROMPT), {"role": "assistant", "content": "Gold."}]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/classify", {"model": "rm", "input": text, "use_activation": False}),
        ("/classify", {"model": "rm", "input": [text, other]}),
        ("/classify", {"input": [text], "use_activation": True}),
        ("/classify", {"input": ids}),
        ("/classify", {"input": [ids, ids[3:]]}),
        ("/classify", {"messages": messages}),
        ("/classify", {"input": other, "truncate_prompt_tokens": 9, "truncation_side": "left"}),
        ("/pooling", {"input": [text, other], "task": "classify"}),
        ("/pooling", {"input": text, "encoding_format": "base64"}),
    ]
    for path, body in requests:
        ours, theirs = (httpx.post(url + path, json=body, timeout=60) for url in (server.url, vllm_server))
        assert (ours.status_code, theirs.status_code) == (200, 200), (body, ours.text, theirs.text)
        mine, its = ours.json(), theirs.json()
        assert shape(mine) == shape(its), (path, body)
        assert mine["usage"] == its["usage"], (path, body)
        for a, b in zip(mine["data"], its["data"], strict=True):
            numbers = [entry.get("probs", entry.get("data")) for entry in (a, b)]
            if body.get("encoding_format") != "base64":
                assert numbers[0] == pytest.approx(numbers[1], abs=1e-4), (path, body)
            assert {k: v for k, v in a.items() if k not in ("probs", "data")} == {
                k: v for k, v in b.items() if k not in ("probs", "data")
            }


@pytest.mark.vllm
def test_vllms_own_server_refuses_the_same(vllm_server: str, wide_server: RunningServer) -> None:
    for path, body in (
        ("/classify", {"model": "other", "input": "a"}),
        ("/classify", {"model": "rm"}),
        ("/classify", {"model": "rm", "input": "x" * 5000}),
        ("/pooling", {"model": "rm", "input": "a", "task": "token_classify"}),
    ):
        ours, theirs = (httpx.post(url + path, json=body, timeout=60) for url in (wide_server.url, vllm_server))
        assert ours.status_code == theirs.status_code, (body, ours.text, theirs.text)
        mine, its = ours.json()["error"], theirs.json()["error"]
        assert set(mine) == set(its), json.dumps([mine, its])
        assert mine["code"] == its["code"]
        if path == "/classify":  # a task is checked at another place here
            assert mine["type"] == its["type"], (body, mine, its)
