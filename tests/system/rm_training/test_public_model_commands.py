"""Published forms through the commands: `assay models check`, `score`, `eval`, and a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from published_models import H, rand, tiny_state, write
from typer.testing import CliRunner

from assay.domain import Message
from assay.score import Score
from assay_rm_training.commands import register as register_training
from assay_rm_training.commands.models import register as register_models
from assay_serving.client import RewardClient
from assay_serving.commands import register as register_serving
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.process import running_server
from assay_serving.scorer import ScoreItem

NAMES = ["helpfulness", "correctness", "coherence", "complexity", "verbosity"]


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        tmp_path_factory.mktemp("public") / "five",
        tiny_state() | {"score.weight": rand(5, H)},
        architecture="LlamaForSequenceClassification",
        config={"id2label": dict(enumerate(NAMES))},
    )


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    for register in (register_training, register_models, register_serving):
        register(app)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout if result.exception is None else f"{result.stdout}{result.exception}"


def test_check_shows_form_reading_and_parity(five: Path, tiny_reward_model: Path) -> None:
    code, text = run("models", "check", str(five), "--json")
    assert code == 0, text
    report = json.loads(text)
    assert report["form"] == "labelled"
    assert report["parts"] == NAMES
    assert {check["name"] for check in report["checks"]} >= {"loaded = loaded again", "batch 1 = batch N"}
    assert all(check["passed"] for check in report["checks"])
    code, text = run("models", "check", str(tiny_reward_model))
    assert code == 0, text
    assert "form       assay" in text
    assert "which of two responses" in text


def test_check_says_what_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "lost", tiny_state() | {"v_head.weight": rand(1, H)}, architecture="InternLM2ForRewardModel")
    code, text = run("models", "check", str(tmp_path / "lost"))
    assert code != 0
    assert "looks like the form 'internlm2', and has no weights named" in text
    write(tmp_path / "strange", tiny_state() | {"rm_head.weight": rand(1, H)}, architecture="StrangeModel")
    code, text = run("models", "check", str(tmp_path / "strange"))
    assert code != 0
    assert "has weights of a reward head (rm_head.weight) in no form that is known here (StrangeModel)" in text


def test_eval_reads_a_published_form(five: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"Name metal {n}.", "chosen": "Gold.", "rejected": "Glass is no metal."} for n in range(4)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, text = run("eval", "--data", str(pairs), "--model", str(five), "--json")
    assert code == 0, text
    assert json.loads(text)["pairs"] == 4


def test_a_server_gives_the_offline_scores_with_their_parts(five: Path) -> None:
    scorer = load_scorer(ModelConfig(str(five), device="cpu", served_as="five"))
    prompt = (Message("user", "Name a metal."),)
    item = ScoreItem(prompt, "Gold.")
    (offline,) = scorer.score([item])
    assert isinstance(offline, Score)
    with running_server({"five": scorer}) as server, RewardClient(server.url) as client:
        (served,) = client.score([item])
    assert isinstance(served, Score)
    assert served.reward == pytest.approx(offline.reward, abs=1e-6)
    assert [part.name for part in served.parts] == NAMES
