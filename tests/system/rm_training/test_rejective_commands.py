"""Rejective filtering and a meta reward model by commands: judgments sampled, the meta reward trained, votes guided."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.domain import Message
from assay.score import Score
from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

WORDS = ["red", "blue", "green", "tree", "stone", "river", "sky", "apple"]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert stop.value.code in (0, None, 2), err
    return dict(json.loads(out))


@pytest.mark.slow
def test_judgments_are_sampled_and_a_meta_reward_tells_right_ones(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(0)
    rows = tmp_path / "rows.jsonl"
    pair = {"prompt": "Which?", "responses": ["a red apple", "a stone"], "verdict": "A"}
    rows.write_text("".join(json.dumps(pair | {"prompt": f"Which, {n}?"}) + "\n" for n in range(2)))
    place = ["-w", workspace.root, "--json"]
    asked = ["--judge", "tiny", "--data", rows, "--samples", "2", "--temperature", "1", "--max-new-tokens", "6"]
    out, lines = tmp_path / "accepted.jsonl", tmp_path / "trajectories.jsonl"
    counts = run(capsys, "judge", "sample", *asked, "--out", out, "--trajectories", lines, *place)
    assert (counts["asked"], counts["never_right"], counts["accepted"]) == (2, 2, 0)  # random weights state no verdict
    assert (counts["replies"], counts["unread"]) == (4, 4)
    assert out.read_text() == ""
    sampled = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {label for line in sampled for label in line["labels"]} == {0.0}

    with lines.open("w") as stream:
        for number in range(64):
            reason = " ".join(rng.choices(WORDS, k=3))
            text = f"{reason}\nVerdict: {'A' if number % 2 else 'B'}"
            stream.write(json.dumps({**sampled[0], "steps": [text], "labels": [float(number % 2)]}) + "\n")
    options = ["--base", "tiny", "--device", "cpu", "--lr", "0.01", "--head-lr", "0.02", "--epochs", "3"]
    options += ["--batch-size", "8", "--max-length", "512", "--name", "meta", "--separator", "<next>"]
    trained = run(capsys, "train", "steps", "--data", lines, *options, *place)
    meta = load_scorer(ModelConfig(str(trained["path"]), device="cpu"))
    question = (Message("user", sampled[0]["prompt"]),)
    texts = ["sky red tree\nVerdict: A", "sky red tree\nVerdict: B"]
    right, wrong = meta.score([ScoreItem(question, text) for text in texts])
    assert isinstance(right, Score)
    assert isinstance(wrong, Score)
    assert right.reward > wrong.reward
    pairs = tmp_path / "pairs.jsonl"
    counts = run(capsys, "judge", "sample", *asked, "--out", out, "--pairs", pairs, "--meta", "meta", *place)
    assert (counts["pairs"], counts["without_meta_reward"]) == (0, 0)  # no reply has a verdict to prefer
    guided = run(capsys, "eval-judge", *asked, "--meta", "meta", *place)
    assert guided["answers"] == 4  # of two samples in both orders of two rows, the better half
