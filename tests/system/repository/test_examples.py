"""The examples, one a user, run as a user would: curate, train, query, on the tiny model."""

from __future__ import annotations

import json
import re
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


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The workspace that the first example makes of 60 pairs, one twice and one broken; and what it printed."""
    folder = tmp_path_factory.mktemp("examples")
    rows = [{"prompt": f"Question {n}?", "chosen": f"Answer {n}, a good one.", "rejected": f"{n}"} for n in range(60)]
    lines = [json.dumps(row) for row in [*rows, rows[0]]] + ['{"prompt": "Half a row?"}']
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return folder, run("curate_preferences.py", "mine", "pairs.jsonl", cwd=folder)


def test_curating(curated: tuple[Path, str]) -> None:
    folder, said = curated
    assert "62 rows, 60 new comparisons" in said
    assert "queue first: 20 pairs, 2 people each" in said
    sizes = [int(n) for n in re.findall(r"^snapshot mine\S*: (\d+) pairs$", said, re.MULTILINE)]
    assert sum(sizes) == 60
    with Workspace.open(folder / "mine").store.unit() as db:
        assert db.execute("SELECT count(*) FROM rejects").fetchone() == (1,)


def test_training_and_querying(curated: tuple[Path, str]) -> None:
    folder, _ = curated
    said = run("train_reward_model.py", "mine", "--base", "tiny", "--name", "helpful", cwd=folder)
    assert re.search(r"^accuracy [01]\.\d{3} \[[01]\.\d{3} to [01]\.\d{3}\]$", said, re.MULTILINE), said
    workspace = Workspace.open(folder / "mine")
    with running_server({"helpful": load_scorer(ModelConfig(str(workspace.models / "helpful")))}) as server:
        said = run("query_rewards.py", "--url", server.url, cwd=folder)
    assert len(re.findall(r"^    [+-]\d+\.\d{3}, advantage [+-]\d\.\d\d: ", said, re.MULTILINE)) == 8, said
