"""A principle model by `assay serve` as its own process and by `assay score`: the principle from end to end."""

from __future__ import annotations

import asyncio
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.cli.main import main
from assay.domain import Message
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay.workspace import Workspace
from assay_serving.client import AsyncRewardClient, RewardClient
from assay_serving.engines.principle import PrincipleScorer
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ScoreItem

ASSAY = str(Path(sys.executable).parent / "assay")
PROMPT = (Message("user", "Name a metal."),)
START_S = 240


@pytest.fixture(scope="module")
def url(tiny_principle_model: Path) -> Iterator[str]:
    command = [ASSAY, "serve", str(tiny_principle_model), "--name", "prm", "--port", "0", "--device", "cpu", "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else ""
        assert line, "the server did not start"
        yield json.loads(line)["url"]
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def offline(tiny_principle_model: Path) -> PrincipleScorer:
    return PrincipleScorer.load(ModelConfig(str(tiny_principle_model), device="cpu"))


@pytest.mark.slow
def test_each_item_is_judged_by_its_own_principle(url: str, offline: PrincipleScorer) -> None:
    items = [ScoreItem(PROMPT, f"Answer {n % 4}.", f"Principle {n % 3}") for n in range(12)]
    with RewardClient(url) as client:
        client.wait_until_ready(START_S)
        found = client.score(items)
        assert client.models()[0].kind == "principle"
    for item, one, other in zip(items, found, offline.score(items), strict=True):
        assert isinstance(one, Score)
        assert isinstance(other, Score)
        assert one.principle == item.principle
        assert one.reward == pytest.approx(other.reward, abs=1e-5)
        assert one.probability == pytest.approx(other.probability, abs=1e-5)


@pytest.mark.slow
def test_a_group_shares_its_principle(url: str, offline: PrincipleScorer) -> None:
    responses = ["Gold.", "Glass."]

    async def ask() -> list[float]:
        async with AsyncRewardClient(url) as client:
            await client.wait_until_ready(START_S)
            found = await client.score_group("Name a metal.", responses, principle="Correctness")
        return [result.reward for result in found if isinstance(result, Score)]

    expected = offline.score([ScoreItem(PROMPT, text, "Correctness") for text in responses])
    assert asyncio.run(ask()) == pytest.approx([r.reward for r in expected if isinstance(r, Score)], abs=1e-5)


@pytest.mark.slow
def test_the_bare_wire(url: str) -> None:
    """As anything that is not our client would ask: one item without a principle fails alone."""
    with RewardClient(url) as client:
        client.wait_until_ready(START_S)
    body = {
        "items": [
            {"prompt": "Name a metal.", "response": "Gold.", "principle": "Correctness"},
            {"prompt": "Name a metal.", "response": "Gold."},
        ]
    }
    reply = httpx.post(url + "/v1/score", json=body)
    assert reply.status_code == 200
    scored, failed = reply.json()["results"]
    assert scored["principle"] == "Correctness"
    assert scored["reward"] is not None
    assert failed["error"]["code"] == "bad_input"
    assert "principle" in failed["error"]["message"]


@pytest.mark.slow
def test_score_takes_principles_from_the_file_and_the_command_line(
    url: str, tiny_principle_model: Path, workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"prompt": "Name a metal.", "response": "Gold.", "principle": "Brevity"},
        {"prompt": "Name a metal.", "responses": ["Gold.", "Glass."]},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["score", str(file), "--out", str(out), "--save", "--workspace", str(workspace.root)]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--model", str(tiny_principle_model), "--principle", "Correctness"])
    assert not ended.value.code, capsys.readouterr().err
    own, grouped = [json.loads(line) for line in out.read_text().splitlines()]
    assert own["score"]["principle"] == "Brevity"
    assert [score["principle"] for score in grouped["scores"]] == ["Correctness", "Correctness"]
    with workspace.store.unit() as db:
        stored = db.execute("SELECT principle, count(*) FROM scores GROUP BY 1 ORDER BY 1").fetchall()
    assert stored == [("Brevity", 1), ("Correctness", 2)]

    with pytest.raises(SystemExit) as ended:  # a row without one, and none on the command line
        main([*arguments, "--reward", url])
    assert ended.value.code == 2
    assert "principle" in capsys.readouterr().err


def test_score_names_a_model_from_elsewhere_by_kind(
    tiny_principle_base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["score", "--model", str(tiny_principle_base), "--prompt", "Name a metal.", "--response", "Gold."]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--kind", "principle", "--principle", "Correctness", "--json"])
    assert not ended.value.code
    [score] = json.loads(capsys.readouterr().out)["scores"]
    assert score["principle"] == "Correctness"


@pytest.mark.slow
def test_verifying_needs_no_principle_and_marks_nothing_it_could_not_compare(
    tiny_principle_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "prm"
    shutil.copytree(tiny_principle_model, folder)

    def verify(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(folder), "--device", "cpu", "--responses", "4", "--json", *options])
        return int(ended.value.code or 0), "".join(capsys.readouterr())

    before = (folder / "assay.json").read_bytes()
    code, said = verify("--principle", " ")  # no item can be scored: that says nothing of the weights
    assert (code, "nothing to compare" in said) == (2, True), said
    assert (folder / "assay.json").read_bytes() == before
    assert verify("--tolerance", "1e-12", "--dtype", "bfloat16")[0] == 5
    assert (folder / "assay.json").read_bytes() == before
    code, said = verify()
    assert code == 0, said
    checked = RewardModelSpec.read(folder)
    assert checked is not None
    assert checked.parity == "passed"
    assert all(check.compared for check in checked.parity_checks)
