"""vLLM's own server beside this one: the same requests for the same checkpoint get the same replies.

`ASSAY_VLLM_PYTHON`: a Python with vLLM. Other projects' clients are in `test_peer_clients`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.domain import Message
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import RunningServer, running_server

PROMPT = (Message("user", "Name a metal."),)
START_S = 240


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
