"""The snippets of the pages on the API and the client, run as they stand against a server of the tiny model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.process import running_server
from assay_serving.trainers.trl import AssayReward

PAGES = Path(__file__).resolve().parents[3] / "docs" / "serving"
ADDRESS = "http://127.0.0.1:8000"


def snippets(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def url(tiny_reward_model: Path) -> Iterator[str]:
    scorer = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="helpful"))
    with running_server({"helpful": scorer}) as running:
        yield running.url


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_requests_are_answered(url: str) -> None:
    asked = [part for snippet in snippets("api.md", "bash") for part in re.split(r"^(?=curl )", snippet, flags=re.M)]
    commands = [part.replace(ADDRESS, url) for part in asked if part.strip()]
    assert len(commands) >= 6
    for command in commands:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        reply = json.loads(done.stdout)
        assert "status" not in reply, done.stdout
        assert reply.get("results") or reply["data"]


def test_the_clients_snippets_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    client, trl, plain = (snippet.replace(ADDRESS, url) for snippet in snippets("client.md", "python"))
    exec(compile(client, "client.md", "exec"), {})
    first, second, probability, order, uses = capsys.readouterr().out.splitlines()
    assert float(first) != float(second)
    assert 0 < float(probability) < 1
    assert sorted(json.loads(order.replace("(", "[").replace(")", "]"))) == [0, 1]
    assert uses == "['refused']"
    made: dict[str, AssayReward] = {}
    exec(compile(trl, "client.md", "exec"), made)
    assert made["reward"].__name__ == "helpful"
    exec(compile(plain, "client.md", "exec"), {})
    assert len(json.loads(capsys.readouterr().out)) == 2
