"""The examples, one a user, run as a user would, on the tiny model: curate, train in notebooks, query."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.process import running_server

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def run(script: str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_notebook(script: str, cwd: Path, capsys: pytest.CaptureFixture[str], **settings: str | int) -> str:
    """Its cells in this process, where torch is imported once, with other values of its settings; what they print."""
    text = (EXAMPLES / script).read_text(encoding="utf-8")
    for name, value in settings.items():
        text, replaced = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value!r}", text, flags=re.MULTILINE)
        assert replaced == 1, name
    copy = cwd / script
    copy.write_text(text, encoding="utf-8")
    here = Path.cwd()
    os.chdir(cwd)
    try:
        runpy.run_path(str(copy), run_name="__main__")
    finally:
        os.chdir(here)
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The workspace that the first example makes of 60 pairs, one twice and one broken; and what it printed."""
    folder = tmp_path_factory.mktemp("examples")
    rows = [{"prompt": f"Question {n}?", "chosen": f"Answer {n}, a good one.", "rejected": f"{n}"} for n in range(60)]
    lines = [json.dumps(row) for row in [*rows, rows[0]]] + ['{"prompt": "Half a row?"}']
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return folder, run("curate_preferences.py", "mine", "pairs.jsonl", cwd=folder)


@pytest.mark.slow
def test_curating(curated: tuple[Path, str]) -> None:
    folder, said = curated
    assert "62 rows, 60 new comparisons" in said
    assert "queue first: 20 pairs, 2 people each" in said
    sizes = [int(n) for n in re.findall(r"^snapshot mine\S*: (\d+) pairs$", said, re.MULTILINE)]
    assert sum(sizes) == 60
    with Workspace.open(folder / "mine").store.unit() as db:
        assert db.execute("SELECT count(*) FROM rejects").fetchone() == (1,)


def test_training_and_querying(curated: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = curated
    said = run_notebook("train_reward_model.py", folder, capsys, BASE="tiny")
    assert re.search(r"^accuracy [01]\.\d{3} \[[01]\.\d{3} to [01]\.\d{3}\]$", said, re.MULTILINE), said
    workspace = Workspace.open(folder / "mine")
    with running_server({"helpful": load_scorer(ModelConfig(str(workspace.models / "helpful")))}) as server:
        said = run("query_rewards.py", "--url", server.url, cwd=folder)
    assert len(re.findall(r"^    [+-]\d+\.\d{3}, advantage [+-]\d\.\d\d: ", said, re.MULTILINE)) == 8, said


@pytest.mark.slow
def test_a_policy_with_rewards_and_callbacks_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run_notebook("train_policy.py", tmp_path, capsys, POLICY="tiny", STEPS=10)
    assert re.findall(r"^step (\d+): reward 0\.\d{3}", printed, re.MULTILINE) == [str(n) for n in range(1, 11)]
    assert re.search(r"^step 10: held-out reward 0\.\d{3}$", printed, re.MULTILINE)
    assert "step 10: checkpoint-00000010" in printed
    assert re.search(r"^held-out reward [+-]0\.\d{3} after 10 steps$", printed, re.MULTILINE)


@pytest.mark.slow
def test_a_policy_on_pairs_is_a_reward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = run_notebook("preference_training.py", tmp_path, capsys, BASE="tiny", STEPS=2)
    assert "ranking accuracy 1.000" in printed
    polite, curt = map(float, re.findall(r"^([+-]\d\.\d{3})  ", printed, re.MULTILINE))
    assert polite > curt
    assert re.search(r"^reward -?\d\.\d{3} in step 1, -?\d\.\d{3} in step 2$", printed, re.MULTILINE)
