"""vLLM in process and behind HTTP gives the scores of the reference engine, for every kind of model.

Needs a vLLM environment: ASSAY_VLLM_PYTHON names its Python (docs/serving/engines.md). Without it only what needs no
vLLM is tested, in `test_remote_engines.py` and its neighbours.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from vllm_engines_child import items, written

from assay.http.listening import claim_port
from assay.models.spec import Judging, RewardModelSpec, weights_digest
from assay.score import Score
from assay_serving.client import RewardClient
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.templates import POINTWISE
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.process import running_server
from assay_serving.scorer import Scorer
from assay_serving.vllm.engine_loader import VllmServerLoader

ENVIRONMENT = "ASSAY_VLLM_PYTHON"
ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "tests" / "support" / "vllm_engines_child.py"
TOLERANCE = 1e-4
START_S = 900.0
MAX_NEW_TOKENS = 12
ITEMS = [
    *(["Name a metal that does not rust.", f"{metal}, because it is noble."] for metal in ("Gold", "Tin", "Iron")),
    ["What is two plus two?", "Four."],
    ["What is two plus two?", ""],
    ["Say something long.", "y" * 5000],  # fits in no model here
]

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def vllm_python() -> str:
    named = os.environ.get(ENVIRONMENT)
    if not named:
        pytest.skip(f"no vLLM environment: set {ENVIRONMENT} to its Python")
    return named


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small checkpoints with heads of 32 (vLLM's CPU attention wants no less): a scalar model whose config says nothing
    of regression (vLLM's own answer is then a sigmoid), a principle model, the language model that they are of."""
    import torch

    from assay.models.chat.renderer import Renderer
    from assay.models.loading import load_scalar_model, load_tokenizer
    from assay.models.quiet import quiet_transformers
    from assay.models.tiny import make_tiny
    from assay_serving.engines.principle import principle_spec

    root = tmp_path_factory.mktemp("vllm-models")
    base = root / "base"
    make_tiny(base, hidden=128, words=("Yes", "No", " Yes", " No"))
    tokenizer = load_tokenizer(str(base))
    renderer = Renderer(tokenizer, max_length=1024)
    model = load_scalar_model(str(base), tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
    model.get_parameter("score.weight").data *= 20  # rewards well outside of what a sigmoid can give
    model.config.problem_type = None
    with quiet_transformers():
        model.save_pretrained(root / "sigmoid")
        tokenizer.save_pretrained(root / "sigmoid")
    version = weights_digest(root / "sigmoid")
    scalar = RewardModelSpec("scalar", "tiny", renderer.template_hash, 512, version, parity="passed")
    scalar.write(root / "sigmoid")
    shutil.copytree(base, root / "principle")
    principle = principle_spec(str(root / "principle"), tokenizer)
    version = weights_digest(root / "principle")
    replace(principle, trained_length=1024, version=version, parity="passed").write(root / "principle")
    return {name: root / name for name in ("base", "sigmoid", "principle")}


@pytest.fixture(scope="module")
def smollm2_scalar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A released architecture of real size: SmolLM2-135M as a LlamaForSequenceClassification with a new head."""
    import torch

    from assay.errors import AssayError
    from assay.models.loading import load_scalar_model, load_tokenizer
    from assay.models.quiet import quiet_transformers

    folder = tmp_path_factory.mktemp("vllm-models") / "smollm2"
    try:
        tokenizer = load_tokenizer("smollm2")
        model = load_scalar_model("smollm2", tokenizer, dtype=torch.float32, device=torch.device("cpu"), new_head=True)
    except AssayError as error:
        pytest.skip(f"no embedded model: {error}")
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def environment(**more: str) -> dict[str, str]:
    given = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT / 'serving'}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "0",
        "OMP_NUM_THREADS": "1",
    }
    return given | more


def rewards(scorer: Scorer) -> list[Any]:
    results = scorer.score(items(ITEMS, principle=scorer.info.kind == "principle"))
    return [r.reward if isinstance(r, Score) else r.code for r in results]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert [v if isinstance(v, str) else "score" for v in found] == ["score"] * 5 + ["too_long"]
    assert found == [pytest.approx(v, abs=TOLERANCE) if isinstance(v, float) else v for v in expected]


def assert_same_writing(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Draws are those of another generator, but repeat: with the seed, whatever stands beside them."""
    assert found["answers"] == expected["answers"]
    for one, other in zip(found["logps"], expected["logps"], strict=True):
        assert one == pytest.approx(other, abs=TOLERANCE)
    whole, part = found["draws"]
    assert whole[1:] == part
    assert whole[0][0] != whole[0][1]


def test_in_process_gives_the_reference_engines_scores(
    vllm_python: str, models: dict[str, Path], smollm2_scalar: Path, tmp_path: Path
) -> None:
    folders = [models["sigmoid"], smollm2_scalar, models["principle"]]
    request, reply = tmp_path / "request.json", tmp_path / "reply.json"
    asked = {
        "folders": [str(folder) for folder in folders],
        "items": ITEMS,
        "writer": str(models["base"]),
        "max_new_tokens": MAX_NEW_TOKENS,
    }
    request.write_text(json.dumps(asked))
    done = subprocess.run(
        [vllm_python, str(CHILD), str(request), str(reply)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(reply.read_text())
    for folder in folders:
        expected = rewards(load_scorer(ModelConfig(str(folder), device="cpu", max_length=None)))
        if folder == smollm2_scalar:  # its trained length is its context: the long response fits
            assert found[str(folder)] == pytest.approx(expected, abs=TOLERANCE)
        else:
            assert_same(found[str(folder)], expected)
    judging = Judging(POINTWISE.name, POINTWISE.hash, max_new_tokens=MAX_NEW_TOKENS)
    local, _ = LocalWriter.load(
        ModelConfig(str(models["base"]), device="cpu"),
        judging=judging,
    )
    assert_same_writing(found["written"], json.loads(json.dumps(written(local, judging))))


@contextmanager
def vllm_server(python: str, folder: Path, log: Path, *options: str) -> Iterator[str]:
    """A real vLLM server, ended with the block."""
    claimed = claim_port("127.0.0.1", 0)
    port = claimed.getsockname()[1]
    claimed.close()
    url = f"http://127.0.0.1:{port}"
    command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--dtype", "float32", "--max-num-seqs", "16", "--enforce-eager", *options]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, env=environment(), stdout=stream, stderr=stream, cwd=log.parent, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            try:
                if httpx.get(f"{url}/health", timeout=2.0).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its engine is a process of its own
        process.wait(30)


def test_a_classifying_server_behind_our_routes(vllm_python: str, models: dict[str, Path], tmp_path: Path) -> None:
    """The server has the model whose config says nothing of regression: its own replies are sigmoids."""
    options = ("--served-model-name", "rm", "--runner", "pooling", "--convert", "classify", "--max-model-len", "512")
    expected = rewards(load_scorer(ModelConfig(str(models["sigmoid"]), device="cpu")))
    with vllm_server(vllm_python, models["sigmoid"], tmp_path / "log", *options) as url:
        body = {"model": "rm", "input": [[1, 2, 3]]}
        (activated,) = httpx.post(f"{url}/classify", json=body, timeout=60.0).json()["data"][0]["probs"]
        assert 0 < activated < 1
        scorer = load_scorer(ModelConfig(str(models["sigmoid"]), engine="vllm-http", engine_options={"url": url}))
        assert_same(rewards(scorer), expected)
        with running_server({"rm": scorer}) as ours, RewardClient(ours.url) as client:
            results = client.score(items(ITEMS, principle=False))
        assert_same([r.reward if isinstance(r, Score) else r.code for r in results], expected)


def test_a_generating_server_as_principle_model_and_as_judge(
    vllm_python: str, models: dict[str, Path], tmp_path: Path
) -> None:
    expected = rewards(load_scorer(ModelConfig(str(models["principle"]), device="cpu")))
    judging = Judging(POINTWISE.name, POINTWISE.hash, max_new_tokens=MAX_NEW_TOKENS)
    local, _ = LocalWriter.load(
        ModelConfig(str(models["base"]), device="cpu"),
        judging=judging,
    )
    with vllm_server(vllm_python, models["principle"], tmp_path / "log", "--max-model-len", "1025") as url:
        scorer = load_scorer(ModelConfig(str(models["principle"]), engine="vllm-http", engine_options={"url": url}))
        assert_same(rewards(scorer), expected)
        writer = VllmServerLoader(ModelConfig(str(models["base"]), engine_options={"url": url})).writer(judging)[0]
        assert_same_writing(written(writer, judging), written(local, judging))
