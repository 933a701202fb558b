"""Ratings and step labels of a workspace, exported, and trained on by the methods that read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.workspace import Workspace
from assay_rm_training.data.response_labels import load_ratings, load_steps

Run = Callable[..., tuple[int, str, str]]
FAST = (
    "--base",
    "tiny",
    "--lr",
    "0.005",
    "--head-lr",
    "0.005",
    "--batch-size",
    "8",
    "--epochs",
    "1",
    "--device",
    "cpu",
)


@pytest.fixture
def labelled(workspace: Workspace, assay: Run, tmp_path: Path) -> Workspace:
    """Twelve responses that a person and a model rate, and as many with labelled steps."""
    rated = [
        {
            "prompt": f"question {n}",
            "response": f"answer {n}" + "!" * (n % 3),
            "ratings": {"raters": {"ann": {"depth": n % 3}, "gpt-4o": {"depth": 2, "tone": 5 - n % 3}}},
        }
        for n in range(12)
    ]
    steps = [
        {
            "prompt": f"problem {n}",
            "completions": [f"{n} is {n}.", f"So it is {n + n % 2}."],
            "labels": [True, n % 2 == 0],
        }
        for n in range(12)
    ]
    for name, rows in (("rated", rated), ("steps", steps)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        code, _, err = assay("data", "import", path, "--source", name, "-w", workspace.root)
        assert code == 0, err
    return workspace


def trained(assay: Run, workspace: Workspace, *arguments: Any) -> dict[str, Any]:
    code, out, err = assay("train", *arguments, *FAST, "--name", "model", "--json", "-w", workspace.root)
    assert code == 0, err
    report: dict[str, Any] = json.loads(out)
    return report


@pytest.mark.slow
def test_ratings_are_trained_on(labelled: Workspace, assay: Run, tmp_path: Path) -> None:
    file = tmp_path / "ratings-out.jsonl"
    code, _, err = assay("data", "export", file, "--format", "ratings", "--source", "rated", "-w", labelled.root)
    assert code == 0, err
    rows = {row.response: row for row in load_ratings(file)}
    assert len(rows) == 12
    assert rows["answer 5!!"].ratings == {"depth": 2.0, "tone": 3.0}
    assert rows["answer 4!"].ratings["depth"] == 1.0, "the person's, not the mean with the model's"
    assert rows["answer 4!"].source == "rated"
    report = trained(assay, labelled, "ratings", "--ratings", "depth,tone", "--data", file, "--eval-data", file)
    assert (report["method"], report["parity"]) == ("ratings", "passed")


@pytest.mark.slow
def test_step_labels_are_trained_on(labelled: Workspace, assay: Run, tmp_path: Path) -> None:
    file = tmp_path / "steps-out.jsonl"
    code, _, err = assay("data", "export", file, "--format", "steps", "-w", labelled.root)
    assert code == 0, err
    rows = load_steps(file)
    assert {(row.steps, row.labels) for row in rows} == {
        ((f"{n} is {n}.", f"So it is {n + n % 2}."), (1.0, float(n % 2 == 0))) for n in range(12)
    }
    report = trained(assay, labelled, "steps", "--data", file, "--eval-data", file)
    assert (report["method"], report["parity"]) == ("steps", "passed")


def test_nothing_to_export_says_so(workspace: Workspace, assay: Run, tmp_path: Path) -> None:
    for name, what in (("ratings", "no ratings"), ("steps", "no step labels")):
        code, _, err = assay("data", "export", tmp_path / "x.jsonl", "--format", name, "-w", workspace.root)
        assert (code, what in err) == (2, True)
