"""`assay step-values` on a known Markov chain: its values, the trainings that read them, what resumes, what fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from assay_command import captured
from markov_chain import STATES, chain_model, truth

from assay.workspace import Workspace

ENDS_WITH_A = [{"kind": "regex", "pattern": ".*a", "full_match": True}]
ROWS: list[dict[str, Any]] = [
    {"prompt": "go", "constraints": ENDS_WITH_A, "responses": [{"steps": ["b", "a"]}, "c;d;", "a"], "topic": "x"},
    {"prompt": "sampled", "constraints": ENDS_WITH_A},
    {"prompt": "no verifier", "responses": ["a"]},
]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_values_are_estimated_stored_and_trained_on(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, model = captured(capsys), chain_model(tmp_path / "chain")
    prompts, valued, labels = (tmp_path / name for name in ("rows.jsonl", "valued.jsonl", "steps.jsonl"))
    prompts.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    command = ["step-values", model, "-w", workspace.root, "--prompts", prompts, "-o", valued, "--labels", labels]
    command += ["--samples", "200", "--separator", ";", "--max-new-tokens", "60", "--device", "cpu", "--json"]
    code, out, err = run(*command)
    assert code == 2  # and all but the response without a verifier is there
    assert "1 responses have no values, the first: 'no verifier'" in err
    first = json.loads(out)
    assert (first["prompts"], first["responses"], first["without_values"]) == (3, 3 + 4, 1)
    known, sampled, none = read(valued)
    assert (known["topic"], known["constraints"], none["responses"]) == ("x", ENDS_WITH_A, [])
    values = truth()
    for response in known["responses"]:
        assert "".join(response["steps"]) in ("ba", "c;d;", "a")
        assert response["step_values"][0] == pytest.approx(values[0], abs=0.1)
        assert len(response["step_values"]) == len(response["steps"]) + 1
        assert response["step_values"][-1] == response["reward"] == float(response["steps"][-1] == "a")
    assert known["responses"][0]["step_values"][1] == pytest.approx(values[1 + STATES.index("b")], abs=0.1)
    rows = read(labels)
    assert rows[1]["steps"] == ["c", "d"]
    assert rows[0]["labels"][0]["tried"] == 200
    assert rows[0]["labels"][1] == {"correct": 1, "tried": 1}
    code, out, _ = run(*command)
    assert (code, json.loads(out)["generated_tokens"]) == (2, 0)  # found again, but for the row that failed
    assert read(valued)[:2] == [known, sampled]

    valued.write_text("".join(json.dumps(row) + "\n" for row in (known, sampled)), encoding="utf-8")
    size = ["--steps", "1", "--prompts-per-step", "2", "--group-size", "3", "--device", "cpu", "-w", workspace.root]
    common = ["--policy", model, "--reward", "recorded", "--prompts", valued, *size]
    for recipe in ("direct_advantage", "incorrect_data"):
        code, _, err = run("rl", "--recipe", recipe, *common)
        assert code == 0, err
    tiny = ["--base", "tiny", "--data", labels, "--name", "prm", "--device", "cpu", "-w", workspace.root]
    code, _, err = run("train", "steps", *tiny, "--separator", ";", "--epochs", "1")
    assert code == 0, err


def test_what_makes_no_sense_is_one_line(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    prompts = tmp_path / "rows.jsonl"
    prompts.write_text(json.dumps(ROWS[0]) + "\n", encoding="utf-8")
    common = ["-w", workspace.root, "--prompts", prompts]
    code, _, err = run("step-values", "tiny", *common, "-o", tmp_path / "o", "--samples", "2", "--best-of", "4")
    assert (code, err.count("\n")) == (2, 1)
    assert "best of 4 cannot be estimated from fewer samples" in err
    for reward, message in (("prover:tiny?sample=3", "no such setting"), ("prover:tiny?samples=x", "not a number")):
        code, _, err = run("rl", *common, "--policy", "tiny", "--reward", reward, "--steps", "1", "--device", "cpu")
        assert code == 2
        assert message in err.splitlines()[-1]


def test_a_prover_in_the_run(workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PAV with another policy as prover: every rollout has the value before its first step and after each."""
    run, model = captured(capsys), chain_model(tmp_path / "chain")
    prompts = tmp_path / "rows.jsonl"
    prompts.write_text(json.dumps({"prompt": "go", "constraints": ENDS_WITH_A}) + "\n", encoding="utf-8")
    prover = f"process=prover:{model}?samples=8&best_of=2&max_new_tokens=40&separator=b"
    size = ["--steps", "1", "--prompts-per-step", "1", "--group-size", "4", "--max-new-tokens", "12"]
    arguments = ["rl", "--recipe", "pav", "--policy", "tiny", "--prompts", prompts, *size, "-w", workspace.root]
    code, out, err = run(*arguments, "--reward", "verifier", "--reward", prover, "--device", "cpu", "--json")
    assert code == 0, err
    rollouts = read(Path(json.loads(out)["folder"]) / "rollouts.jsonl")
    for row in rollouts:
        assert row["parts"]["process"] == row["parts"]["verifier"]
        assert [part["name"] for part in row["scores"]["process"]["parts"]][:2] == ["step-0", "step-1"]
