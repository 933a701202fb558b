"""A composed reward behind `assay serve`: parts in every reply, labels and references over HTTP, a server as a part."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
import yaml

from assay.cli.main import main
from assay.domain import Message
from assay.score import Score, ScoreFailure, ScoreResult
from assay.statistics.logistic import sigmoid
from assay.workspace import Workspace
from assay_serving.client import RewardClient
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem, Scorer

ASSAY = str(Path(sys.executable).parent / "assay")
KEY = "composed-test-key"
START_S = 240
PROMPT = (Message("user", "Name a metal."),)
NO_COMMAS = json.dumps([{"kind": "no_commas"}])


@pytest.fixture(scope="module")
def reward_file(tiny_reward_model: Path, tiny_principle_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("composed") / "safe-helpful.yaml"
    description = {
        "kind": "composed",
        "parts": [
            {"name": "helpful", "model": str(tiny_reward_model), "shaping": [{"kind": "par"}]},
            {"name": "kind", "model": str(tiny_principle_model), "shaping": [{"kind": "sigmoid"}]},
            {"name": "asked", "constraints": "label", "measure": "passed"},
        ],
        "steps": {"both": {"kind": "weighted_sum", "weights": {"helpful": 0.75, "kind": 0.25}}},
        "combine": {"kind": "gate", "of": "both", "open": "asked", "above": 0.5, "floor": -1.0},
    }
    path.write_text(yaml.safe_dump(description))
    return path


@pytest.fixture(scope="module")
def url(reward_file: Path) -> Iterator[str]:
    command = [ASSAY, "serve", str(reward_file), "--name", "safe", "--port", "0", "--device", "cpu", "--json"]
    environment = os.environ | {"ASSAY_API_KEY": KEY}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else ""
        assert line, "the server did not start"
        yield str(json.loads(line)["url"])
    finally:
        process.terminate()
        process.communicate(timeout=240)


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[RewardClient]:
    with RewardClient(url, api_key=KEY) as client:
        client.wait_until_ready(START_S)
        yield client


@pytest.fixture(scope="module")
def models(tiny_reward_model: Path, tiny_principle_model: Path) -> tuple[Scorer, Scorer]:
    return open_scorer(ModelConfig(str(tiny_reward_model), device="cpu")), open_scorer(
        ModelConfig(str(tiny_principle_model), device="cpu")
    )


def item(response: str, *, label: str | None = NO_COMMAS, references: Sequence[str] = ("Iron.", "Sand.")) -> ScoreItem:
    return ScoreItem(PROMPT, response, "The answer is kind.", label=label, references=tuple(references))


def reward_of(scorer: Scorer, response: str, principle: str | None = None) -> float:
    [result] = scorer.score([ScoreItem(PROMPT, response, principle)])
    assert isinstance(result, Score)
    return result.reward


@pytest.mark.slow
def test_every_reply_holds_its_parts(client: RewardClient, models: tuple[Scorer, Scorer]) -> None:
    scalar, principled = models
    opened, closed, unlabelled = client.score([item("Gold."), item("Gold, tin."), item("Gold.", label=None)])
    par = sum(sigmoid(reward_of(scalar, "Gold.") - reward_of(scalar, text)) for text in ("Iron.", "Sand.")) / 2
    asked = reward_of(principled, "Gold.", "The answer is kind.")
    assert isinstance(opened, Score)
    assert opened.reward == pytest.approx(0.75 * par + 0.25 * sigmoid(asked), abs=1e-5)
    helpful, kind, verdict = opened.parts
    assert helpful.value == pytest.approx(par, abs=1e-5)
    assert kind.reward == pytest.approx(asked, abs=1e-5)
    assert (helpful.version, kind.version) == (scalar.info.version, principled.info.version)
    assert (helpful.weight, kind.weight, verdict.value) == (0.75, 0.25, 1.0)
    assert opened.principle == "The answer is kind."
    assert isinstance(closed, Score)
    assert (closed.reward, closed.tokens) == (-1.0, 0)
    assert [part.skipped for part in closed.parts] == ["asked closed the gate", "asked closed the gate", None]
    assert isinstance(unlabelled, ScoreFailure)
    assert (unlabelled.code, unlabelled.model) == ("bad_input", "safe")
    assert "part asked" in unlabelled.message


@pytest.mark.slow
def test_the_same_scores_offline_and_over_http(client: RewardClient, reward_file: Path) -> None:
    items = [item(f"Metal {n}{',' * (n % 3 == 0)} of course.", references=["Iron."] * (n % 4)) for n in range(40)]
    offline = open_scorer(ModelConfig(str(reward_file), device="cpu"))
    found, expected = client.score(items), offline.score(items)
    kinds: set[str] = set()
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, ScoreFailure):
            assert isinstance(one, ScoreFailure)
            assert one.code == other.code
            kinds.add("failed")
            continue
        assert isinstance(one, Score)
        assert one.reward == pytest.approx(other.reward, abs=1e-5)
        assert (one.model, one.version, one.template_hash) == ("safe", other.version, offline.info.template_hash)
        assert [part.skipped for part in one.parts] == [part.skipped for part in other.parts]
        kinds.add("closed" if one.parts[0].skipped else "open")
    assert kinds == {"failed", "closed", "open"}
    assert client.models()[0].version == offline.info.version
    assert client.models()[0].kind == "composed"


@pytest.mark.slow
def test_a_score_is_not_used_again_for_another_label_or_reference(client: RewardClient) -> None:
    def rewards(*items: ScoreItem) -> list[float]:
        results: list[ScoreResult] = client.score(items)
        return [result.reward for result in results if isinstance(result, Score)]

    commas, other = item("Gold, tin."), item("Gold, tin.", label=json.dumps([{"kind": "max_words", "limit": 9}]))
    first, again, changed = rewards(commas, commas, other)
    assert first == again == -1.0 != changed
    near, far = rewards(item("Gold."), item("Gold.", references=["Gold."]))
    assert near != far


@pytest.mark.slow
def test_a_plain_request_and_the_metrics(url: str) -> None:
    body = {"prompt": "Name a metal.", "responses": ["Gold."], "references": ["Iron."], "principle": "x"}
    headers = {"Authorization": f"Bearer {KEY}"}
    reply = httpx.post(
        f"{url}/v1/score", json=body | {"label": [{"kind": "no_commas"}]}, headers=headers, timeout=240
    ).json()
    [result] = reply["results"]
    assert [part["name"] for part in result["parts"]] == ["helpful", "kind", "asked"]
    assert "skipped" not in result["parts"][0]
    assert 'assay_items_total{model="safe"}' in httpx.get(f"{url}/metrics", headers=headers).text


@pytest.mark.slow
def test_a_server_as_a_part(url: str, client: RewardClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFE_KEY", KEY)
    path = tmp_path / "outer.yaml"
    part = {"name": "inner", "model": url, "served": "safe", "api_key_env": "SAFE_KEY"}
    short = {"name": "short", "constraints": [{"kind": "max_words", "limit": 3}]}
    combine = {"kind": "min", "of": ["inner", "short"]}
    path.write_text(yaml.safe_dump({"kind": "composed", "parts": [part, short], "combine": combine}))
    outer = open_scorer(ModelConfig(str(path)))
    [score] = outer.score([item("Gold.")])
    [inner] = client.score([item("Gold.")])
    assert isinstance(score, Score)
    assert isinstance(inner, Score)
    assert score.reward == pytest.approx(min(inner.reward, 1.0), abs=1e-6)
    assert [p.name for p in score.parts] == ["inner", "inner.helpful", "inner.kind", "inner.asked", "short"]
    assert score.parts[0].version == inner.version


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code, captured.out, captured.err


@pytest.mark.slow
def test_assay_score_reads_labels_and_shows_parts(
    capsys: pytest.CaptureFixture[str], url: str, reward_file: Path, tmp_path: Path, workspace: Workspace
) -> None:
    lines = tmp_path / "in.jsonl"
    row = {"prompt": "Name a metal.", "principle": "x", "references": ["Iron."], "label": [{"kind": "no_commas"}]}
    rows = [row | {"response": "Gold."}, row | {"response": "Gold, tin."}, {"prompt": "a", "response": "b"}]
    lines.write_text("\n".join(map(json.dumps, rows)))
    sources = ((("--reward", url, "--api-key", KEY), "safe"), (("--model", reward_file), "safe-helpful"))
    for source, name in sources:
        code, out, errors = run(capsys, "score", lines, *source)
        first, second, third = map(json.loads, out.splitlines())
        assert code == 2
        assert first["score"]["model"] == name
        assert [part["name"] for part in first["score"]["parts"]] == ["helpful", "kind", "asked"]
        assert second["score"]["reward"] == -1.0
        assert third["error"]["code"] == "bad_input"
        assert "row 3: part asked: field 'label'" in errors
    code, _, errors = run(capsys, "score", lines, "--reward", url, "--api-key", KEY, "--save", "-w", workspace.root)
    assert code == 2
    assert "score without --save" in errors.splitlines()[-1]


@pytest.mark.slow
def test_what_cannot_be_calibrated_is_told_at_once(
    capsys: pytest.CaptureFixture[str], reward_file: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n")
    calibrate = ("calibrate", "--model", reward_file, "--data", pairs)
    for arguments in (calibrate, ("eval", *calibrate[1:], "--calibrate")):
        code, _, errors = run(capsys, *arguments)
        assert code == 2
        assert "composed" in errors.splitlines()[-1]


def test_the_example_is_read_as_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "compose", "--example")
    assert code == 0
    path = tmp_path / "example.yaml"
    path.write_text(out)
    code, out, _ = run(capsys, "compose", path)
    assert code == 0
    assert out.splitlines()[-1] == "reward   = quality where polite > 0.5, else 0"
    code, out, _ = run(capsys, "compose", path, "--json")
    assert [part["name"] for part in json.loads(out)["parts"]] == ["helpful", "brief", "polite"]
    assert run(capsys, "compose")[0] == 2
    assert run(capsys, "compose", tmp_path / "none.yaml")[0] == 3
