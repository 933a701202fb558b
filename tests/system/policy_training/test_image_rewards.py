"""A policy that sees: exact-class rewards of drawn colours raise what it names, from a warm start by SFT."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from assay_command import Run, captured, exit_code
from drawn_images import COLOURS, SHAPES, asked, data_url, drawn

from assay.models.tiny_vision import make_tiny_vision
from assay.workspace import Workspace


def write_rows(folder: Path, seed: int, *, warm: int, train: int, held: int) -> None:
    """Rows of SFT, whose answer is a colour at random in three of five; rows to train on; others of unseen styles."""
    rng = random.Random(seed)
    for name, number in (("warm", warm), ("train", train), ("held", held)):
        lines = []
        for _ in range(number):
            colour = rng.choice(list(COLOURS))
            image = drawn(rng, colour, rng.choice(SHAPES), unseen=name == "held")
            row: dict[str, Any] = {"prompt": asked(data_url(image), "Which colour?")}
            if name == "warm":
                row["completion"] = rng.choice(list(COLOURS)) if rng.random() < 0.6 else colour
            else:
                row["constraints"] = [{"kind": "exact_class", "label": colour, "thinking": False}]
            lines.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))


def learnt(folder: Path, base: str | Path, seed: int, *, epochs: int, steps: int, rows: tuple[int, int]) -> list[float]:
    """Share of right names on held-out images before and after the policy training."""
    where = ("-w", folder / "workspace")
    Workspace.create(folder / "workspace")
    common = ("--seed", str(seed), *where)
    begun = ("train", "sft", "--base", base, "--data", folder / "warm.jsonl", "--name", "warm", "--dtype", "float32")
    assert (
        exit_code(*begun, "--lr", "0.002", "--batch-size", "8", "--epochs", str(epochs), "--max-length", "256", *common)
        == 0
    )
    named = ("rl", "--policy", "warm", "--prompts", folder / "train.jsonl", "--reward", "verifier", "--name", "seeing")
    sizes = ("--steps", str(steps), "--prompts-per-step", str(rows[0]), "--group-size", str(rows[1]), "--lr", "0.001")
    held = ("--evaluate", "100", "--eval-prompts", folder / "held.jsonl", "--set", "optimisation.autocast=false")
    assert exit_code(*named, *sizes, "--max-new-tokens", "10", *held, *common) == 0
    (run,) = (folder / "workspace" / "runs").glob("*/evaluation.json")
    report = json.loads(run.read_text())
    return [float(report[when]["reward_mean"]) for when in ("before", "after")]


@pytest.mark.slow
def test_a_policy_learns_colours_by_exact_class_rewards(tmp_path: Path) -> None:
    """A colour is one token here, so that few steps are enough."""
    make_tiny_vision(tmp_path / "base", words=list(COLOURS))
    write_rows(tmp_path, 1, warm=64, train=128, held=40)
    before, after = learnt(tmp_path, tmp_path / "base", 1, epochs=8, steps=20, rows=(8, 8))
    assert before < 0.65
    assert after > before + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_shipped_model_learns_colours_clear_of_its_start(seed: int, tmp_path: Path) -> None:
    write_rows(tmp_path, seed, warm=128, train=512, held=100)
    before, after = learnt(tmp_path, "tiny-vision", seed, epochs=6, steps=60, rows=(16, 8))
    assert before < 0.5
    assert after > before + 0.3


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    Workspace.create(tmp_path / "workspace")
    return captured(capsys)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--policy", "tiny"), "tiny reads text only"),
        (("--policy", "tiny-vision", "--set", "sampler.kind=vllm_server", "--set", "sampler.launch=true"), "sampler"),
        (("--policy", "tiny-vision", "--set", "asynchrony.lag=1"), "asynchrony.lag"),
        (("--policy", "tiny-vision", "--recipe", "ppo"), "critic"),
        (("--policy", "tiny-vision", "--set", "environment={kind: tools, tools: [calculator]}"), "environment"),
    ],
)
def test_what_takes_no_images_is_refused_in_one_line(
    options: tuple[str, ...], field: str, run: Run, tmp_path: Path
) -> None:
    write_rows(tmp_path, 1, warm=0, train=2, held=0)
    fixed = ("--prompts", tmp_path / "train.jsonl", "--reward", "verifier", "--evaluate", "0", "--steps", "1")
    code, _, err = run("rl", *options, *fixed, "--name", "refused", "-w", tmp_path / "workspace")
    assert code != 0
    assert field in err
    assert len(err.strip().splitlines()) <= 2, err


def test_a_prompt_whose_image_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    write_rows(tmp_path, 1, warm=0, train=2, held=0)
    rows = tmp_path / "train.jsonl"
    rows.write_text(rows.read_text() + json.dumps({"prompt": asked("https://a.example/b.png")}) + "\n")
    fixed = ("--prompts", rows, "--reward", "verifier", "--evaluate", "0", "--policy", "tiny-vision", "--steps", "1")
    code, _, err = run("rl", *fixed, "-w", tmp_path / "workspace")
    assert code != 0
    assert "prompt 3: " in err
    assert "is not fetched" in err
