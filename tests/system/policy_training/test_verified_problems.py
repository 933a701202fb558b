"""`assay rl --reward verifier` on problems with right answers: rows of GSM8K and HumanEval, in their short forms."""

from __future__ import annotations

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from assay.workspace import Workspace
from assay_policy_training.plugins.prompts.source import load_prompts
from assay_policy_training.rollouts.rewards import VerifierReward, verifier_accuracy

pytest.importorskip("math_verify", reason="needs the extra verifiers")


def read(folder: Path, name: str, number: int) -> list[dict[str, Any]]:
    if not (folder / name).is_file():
        pytest.skip(f"no {name} in the shared data")
    with gzip.open(folder / name, "rt") as lines:
        return [json.loads(line) for line in islice(lines, number)]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_gsm8k_solutions_are_right_and_others_are_not(shared_data: Path, tmp_path: Path) -> None:
    problems = read(shared_data, "gsm8k_train.jsonl.gz", 300)
    rows = [{"prompt": p["prompt"], "answer": p["meta"]["answer"]} for p in problems]
    items = load_prompts(str(written(tmp_path / "gsm8k.jsonl", rows)), seed=0)
    solutions = [p["meta"]["solution"] for p in problems]
    assert verifier_accuracy(items, solutions).tolist() == [1.0] * 300
    without_marks = [solution.partition("####")[0] for solution in solutions]
    assert verifier_accuracy(items, without_marks).mean() > 0.95, "the last number is nearly always the answer"
    assert verifier_accuracy(items, [f"{solution}7" for solution in solutions]).tolist() == [0.0] * 300


def test_humaneval_solutions_are_right_and_stubs_are_not(shared_data: Path, tmp_path: Path) -> None:
    problems = read(shared_data, "humaneval.jsonl.gz", 6)
    rows = [
        {"prompt": p["prompt"], "tests": [p["meta"]["test"]], "entry_point": p["meta"]["entry_point"]} for p in problems
    ]
    items = load_prompts(str(written(tmp_path / "humaneval.jsonl", rows)), seed=0)
    starts = [p["prompt"][0]["content"] for p in problems]
    right = [f"```python\n{s}{p['meta']['canonical_solution']}```" for s, p in zip(starts, problems, strict=True)]
    assert VerifierReward().score(items, right).parts["verifier"].tolist() == [1.0] * 6
    stubs = [f"Sure!\n```python\n{start}    return None\n```" for start in starts]
    assert VerifierReward().score(items, stubs).parts["verifier"].tolist() == [0.0] * 6


def test_a_run_on_gsm8k(
    workspace: Workspace, shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from assay.cli.main import main

    problems = read(shared_data, "gsm8k_train.jsonl.gz", 8)
    rows = [{"prompt": p["prompt"], "answer": p["meta"]["answer"]} for p in problems]
    prompts = written(tmp_path / "gsm8k.jsonl", rows)
    arguments = ["rl", "-w", str(workspace.root), "--policy", "tiny", "--steps", "1", "--json", "--reward", "verifier"]
    arguments += ["--prompts", str(prompts), "--prompts-per-step", "2", "--group-size", "3", "--max-new-tokens", "8"]
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    payload = json.loads(capsys.readouterr().out)
    assert ended.value.code == 0, payload
    rollouts = [json.loads(line) for line in (Path(payload["folder"]) / "rollouts.jsonl").read_text().splitlines()]
    assert len(rollouts) == 6
    assert all(row["parts"]["verifier"] in (0.0, 1.0) and not row["failures"] for row in rollouts)
