"""`assay train dpo` and its relatives; a policy beside its reference in `assay eval`, `score`, `serve` and `rl`."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from assay_command import Run
from pair_files import write_pairs

from assay.domain import Message, PreferencePair
from assay.models.spec import RewardModelSpec
from assay.score import Score
from assay.workspace import Workspace
from assay_serving.client import RewardClient
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

FAST = ("--base", "tiny", "--lr", "0.003", "--batch-size", "8", "--device", "cpu")
START_S = 240


def pairs_file(path: Path, count: int, seed: int) -> Path:
    texts = [f"{seed}{number % 7} words {number}" for number in range(count)]
    write_pairs(path, [PreferencePair((Message("user", text),), f"{text}!", f"{text}?") for text in texts])
    return path


@pytest.mark.slow
def test_a_policy_is_trained_evaluated_and_served_as_a_reward_model(
    workspace: Workspace, tmp_path: Path, assay: Run
) -> None:
    where = ("-w", workspace.root)
    train_file, held_file = pairs_file(tmp_path / "train.jsonl", 32, 1), pairs_file(tmp_path / "held.jsonl", 16, 2)
    code, out, err = assay("train", "sft", "--data", train_file, *FAST, "--name", "start", "--json", *where)
    assert code == 0, err
    started = json.loads(out)
    code, out, err = assay(
        "train", "dpo", "--data", train_file, "--eval-data", held_file, *FAST, "--beta", "0.5", "--epochs", "2",
        "--base", "start", "--reference", "tiny", "--name", "policy", "--json", *where,
    )  # fmt: skip
    assert code == 0, err
    trained = json.loads(out)
    assert trained["parity"] == "passed"
    assert trained["evaluation"]["accuracy"]["value"] > 0.9
    folder = workspace.models / "policy"
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    assert spec.implicit is not None
    assert (spec.kind, spec.implicit.beta, spec.implicit.reference) == ("implicit", 0.5, "tiny")
    assert "policy" in (folder / "README.md").read_text()

    margins = {}
    for model in ("policy", "dpo:policy@tiny", "dpo:policy@start", "dpo:policy"):
        code, out, err = assay("eval", "--model", model, "--data", held_file, "--json", *where)
        assert code == 0, err
        found = json.loads(out)
        assert found["accuracy"]["value"] > 0.9
        margins[model] = found["margin_mean"]
    assert margins["policy"] == margins["dpo:policy@tiny"] == trained["evaluation"]["margin_mean"]
    assert len(set(margins.values())) == 3
    code, out, err = assay("models", "--kind", "policy", "--json", *where)
    assert [model["name"] for model in json.loads(out)["models"]] == ["policy", "start"], err
    code, out, err = assay(
        "score", "--model", "dpo:policy@tiny", "--prompt", "Name a metal.", "--response", "Gold!", "--json", *where
    )
    assert code == 0, err
    pair = f"dpo:{folder}@tiny"
    implicit = load_scorer(ModelConfig(pair, device="cpu"))
    items = [ScoreItem((Message("user", "Name a metal."),), text) for text in ("Gold!", "Gold?")]
    expected = [score.reward for score in implicit.score(items) if isinstance(score, Score)]
    assert json.loads(out)["scores"][0]["reward"] == pytest.approx(expected[0])
    code, out, err = assay(
        "rl", "--recipe", "grpo", "--policy", "policy", "--reward", "q=dpo:policy@tiny", "--reward", "dpo:start",
        "--prompts", "constrained:4", "--steps", "1", "--prompts-per-step", "2", "--group-size", "2",
        "--max-new-tokens", "4", "--device", "cpu", "--name", "tuned", "--json", *where,
    )  # fmt: skip
    assert code == 0, err
    run = json.loads(out)
    rollouts = [json.loads(line) for line in (Path(run["folder"]) / "rollouts.jsonl").read_text().splitlines()]
    assert [set(row["parts"]) for row in rollouts] == [{"q", "dpo:start"}] * 4
    scored = implicit.score(
        [ScoreItem(tuple(Message(**turn) for turn in row["prompt"]), row["response"]) for row in rollouts]
    )
    assert [row["parts"]["q"] for row in rollouts] == [
        pytest.approx(score.reward, abs=1e-5) for score in scored if isinstance(score, Score)
    ]
    with workspace.store.unit() as db:
        inputs = db.execute("SELECT ref FROM run_links WHERE run_id = ? AND direction = 'input'", [run["run"]])
        assert {trained["artifact_id"], started["artifact_id"]} <= {row[0] for row in inputs.fetchall()}

    command = [str(Path(sys.executable).parent / "assay"), "serve", pair, "--name", "pair"]
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_API_KEY"}
    process = subprocess.Popen(
        [*command, "--port", "0", "--device", "cpu", "--json"], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else ""
        assert line, "the server did not start"
        with RewardClient(json.loads(line)["url"]) as client:
            client.wait_until_ready(START_S)
            assert client.models()[0].kind == "implicit"
            served = client.score(items)
    finally:
        process.kill()
        process.communicate()
    assert [score.reward for score in served if isinstance(score, Score)] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("dpo", "--beta", "0"), "beta"),
        (("dpo", "--loss", "poem"), "loss"),
        (("dpo", "--reference", "nothing"), "no model 'nothing'"),
        (("simpo", "--gamma", "-1"), "gamma"),
    ],
)
def test_wrong_settings_are_one_clear_line(
    workspace: Workspace, tmp_path: Path, assay: Run, arguments: tuple[str, ...], complaint: str
) -> None:
    data = pairs_file(tmp_path / "train.jsonl", 4, 1)
    code, _, err = assay("train", *arguments, "--data", data, *FAST, "--name", "x", "-w", workspace.root)
    assert code == (3 if complaint.startswith("no model") else 2)
    assert err.splitlines()[-1].startswith("assay: ")
    assert complaint in err.splitlines()[-1]
