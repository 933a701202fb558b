"""`assay eval --bench` with a YAML benchmark: killed and begun again, it scores nothing twice; several models."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from assay_command import Run

from assay.workspace import Workspace
from assay_rm_training.benchmarks.outcome_journal import FOLDER

RESPONSES, PART = 40, 8

#: Scores by length, writes down every response that it scores, and dies as by `kill -9` in the middle of a part.
COUNTING = """
import os, signal
from pathlib import Path
from assay.score import Score
from assay_serving.scorer import ModelInfo
HERE = Path(__file__).parent

class Counting:
    @classmethod
    def load(cls, config, loader):
        return cls()

    info = ModelInfo("counting", version="1")

    def score(self, items, on_progress=None):
        scores = []
        for item in items:
            scored = (HERE / "scored.txt").read_text().split() if (HERE / "scored.txt").exists() else []
            if len(scored) == 20 and not (HERE / "died").exists():
                (HERE / "died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            with (HERE / "scored.txt").open("a") as stream:
                stream.write(f"{item.prompt[0].text}/{len(item.response)}\\n")
            scores.append(Score(float(len(item.response)), "counting", "1", "", tokens=1, truncated=False))
        return scores
"""


@pytest.mark.parametrize("with_workspace", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_killed_evaluation_goes_on_and_scores_nothing_twice(
    with_workspace: bool, tmp_path: Path, assay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASSAY_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    if with_workspace:
        Workspace.create(tmp_path / "w")
    rows = [{"prompt": f"p{n}", "responses": ["a" * (n + 1), "b"], "label": 1} for n in range(1, RESPONSES // 2 + 1)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (tmp_path / "bench.yaml").write_text("protocol: pair\nrows: rows.jsonl\nfields: {label: label}\n")
    (tmp_path / "counting.py").write_text(COUNTING)
    (tmp_path / "words.json").write_text("{}")
    (tmp_path / "reward.yaml").write_text(
        "kind: composed\nparts: [{name: length, model: words.json, model_kind: counting.py:Counting}]\n"
        "combine: {kind: weighted_sum, weights: {length: 1}}\n"
    )
    place = ["--workspace", "w"] if with_workspace else ["--out", "out"]
    command = ["eval", "--bench", "bench.yaml", "--model", "reward.yaml", *place, "--json"]
    journals = "from assay_rm_training.benchmarks.outcome_journal import OutcomeJournals"
    small = f"{journals}; OutcomeJournals.complete.__kwdefaults__['part'] = {PART}"
    script = f"{small}; from assay.cli.main import main; main({command!r})"
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    first = (tmp_path / "scored.txt").read_text().splitlines()
    assert len(first) == 20
    code, out, err = assay(*command)
    assert code == 0, err
    scored = (tmp_path / "scored.txt").read_text().splitlines()
    done = first[: len(first) // PART * PART]  # whole parts are kept; the one that was cut is scored again
    assert sorted(scored[len(first) :] + done) == sorted(f"p{n}/{k}" for n in range(1, 21) for k in (n + 1, 1))
    report = json.loads(out)
    assert report["aggregates"]["overall"] == 1.0
    assert report["counts"]["scored"] == 20
    assert not (tmp_path / ("w" if with_workspace else "out") / FOLDER).exists()
