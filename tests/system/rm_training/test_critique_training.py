"""CLoud as a user gets it: critiques taught, pairs criticised by the model itself, one model for critique and score."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.cli.main import main
from assay.domain import Message
from assay.models.spec import RewardModelSpec
from assay.score import Score, ScoreFailure
from assay.workspace import Workspace
from assay_rm_training.preference.critique import joint_loss
from assay_serving.generative.critique import CritiqueScorer
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

WORDS = ["red", "blue", "green", "tree", "stone", "river", "sky", "apple"]


def test_the_joint_loss_has_the_published_numbers() -> None:
    losses = joint_loss(torch.tensor([1.2]), torch.tensor([1.8]), 1.25)
    assert losses.tolist() == pytest.approx([0.263282 + 1.25 * 1.8], abs=1e-6)


def sides(rng: random.Random) -> tuple[str, str]:
    return tuple(f"{' '.join(rng.choices(WORDS, k=rng.randint(1, 3)))} {mark}" for mark in ("yes", "no"))  # type: ignore[return-value]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with `critic`, taught to call an answer "fine" or "poor", and `cloud`, trained from it on pairs."""
    root, rng = tmp_path_factory.mktemp("cloud"), random.Random(0)
    Workspace.create(root / "w")
    said = "CHOSEN: fine || REJECTED: poor"
    pairs = [dict(zip(("chosen", "rejected"), sides(rng), strict=True), prompt=f"Number {n}") for n in range(72)]
    critiques = write(root / "critiques.jsonl", [{**pair, "rationale": said} for pair in pairs[:48]])
    train, dev = write(root / "train.jsonl", pairs[:48]), write(root / "dev.jsonl", pairs[48:])
    common = ["--device", "cpu", "-w", str(root / "w"), "--batch-size", "8", "--json"]
    asked = ["--max-new-tokens", "6", "--lr", "0.002", "--head-lr", "0.02", "--epochs", "3"]
    for arguments in (
        ["critique-sft", "--data", critiques, "--base", "tiny", "--name", "critic", "--lr", "0.01", "--epochs", "6"],
        ["cloud", "--data", train, "--eval-data", dev, "--base", "critic", "--name", "cloud", *asked],
    ):
        with pytest.raises(SystemExit) as stop:
            main(["train", *map(str, arguments), *common])
        assert not stop.value.code
    return root


def opened(place: Path) -> CritiqueScorer:
    scorer = load_scorer(ModelConfig(str(place / "w" / "models" / "cloud"), device="cpu"), place / "w")
    assert isinstance(scorer, CritiqueScorer)
    return scorer


def items(count: int = 12) -> list[ScoreItem]:
    rng = random.Random(7)
    return [ScoreItem((Message("user", "Number 99"),), text) for _ in range(count // 2) for text in sides(rng)]


@pytest.mark.slow
def test_it_criticises_by_itself_and_the_critique_moves_the_reward(place: Path) -> None:
    scorer = opened(place)
    critiques = scorer.critiques(items())
    assert [each for each in critiques[::2] if each == ["fine"]], critiques
    scores = scorer.score(items())
    assert all(isinstance(score, Score) for score in scores)
    ranked = np.array([score.reward for score in scores if isinstance(score, Score)])
    assert (ranked[::2] > ranked[1::2]).mean() == 1.0
    # The same response after the other critique: the reward follows the critique.
    swapped = []
    for item in items()[:6]:
        question = scorer.question(item)
        assert not isinstance(question, ScoreFailure)
        end = int(scorer.renderer.tokenizer.eos_token_id)
        texts = [scorer.renderer.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("fine", "poor")]
        rewards = scorer.rewards([scorer.reading((*question, *ids, end)) for ids in texts])
        swapped.append([float(reward) for reward in rewards if not isinstance(reward, ScoreFailure)])
    assert all(fine > poor for fine, poor in swapped), swapped


@pytest.mark.slow
def test_several_critiques_are_averaged_and_repeat(place: Path) -> None:
    scorer = opened(place)
    assert scorer.spec.critique is not None
    scorer.spec = replace(scorer.spec, critique=replace(scorer.spec.critique, samples=3, temperature=2.0))
    [first, second] = scorer.score(items(2))
    assert isinstance(first, Score)
    rewards = [part.reward for part in first.parts if part.reward is not None]
    assert len(rewards) == 3
    assert len(set(rewards)) > 1
    assert first.reward == pytest.approx(np.mean(rewards))
    assert first.uncertainty == pytest.approx(np.std(rewards, ddof=1))
    assert scorer.score(items(2)) == [first, second]
    [alone] = scorer.score(items(2)[:1])
    assert isinstance(alone, Score)
    assert alone.reward == pytest.approx(first.reward, abs=1e-4)


@pytest.mark.slow
def test_what_does_not_fit_or_is_no_such_model_is_one_line(place: Path, tmp_path: Path) -> None:
    scorer = opened(place)
    [long, good] = scorer.score([ScoreItem((Message("user", "x"),), "word " * 5000), items(2)[0]])
    assert isinstance(long, ScoreFailure)
    assert long.code == "too_long"
    assert isinstance(good, Score)
    spec = RewardModelSpec.read(place / "w" / "models" / "cloud")
    assert spec is not None
    assert spec.parity == "passed"
    assert not spec.is_one_logit
