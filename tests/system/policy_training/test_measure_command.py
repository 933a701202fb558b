"""`assay measure` on `tiny`: sampled policies, stored samples, recorded rollouts, seeds, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from assay_command import captured

from assay.workspace import Workspace

SHORT = ("--samples", "4", "--max-new-tokens", "4")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"{n}+{n}?", "answer": f"{2 * n}"}) + "\n" for n in range(3)))
    (tmp_path / "mine.py").write_text(
        "def even(prompt, response, **row):\n    return float(len(response) % 2 == 0)\n", encoding="utf-8"
    )
    return path


def test_samples_are_generated_once_and_an_interrupted_generation_resumes(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    command = ("measure", "pass_at_k", "base=tiny", "-w", workspace.root, "--prompts", prompts, *SHORT, "--json")
    code, out, err = run(*command, "--set", "k=[1,4]")
    assert code == 0, err
    first = json.loads(out)
    assert [(row["k"], row["prompts"], row["unjudged"]) for row in first["table"]] == [(1, 3, 0), (4, 3, 0)]
    assert json.loads((workspace.runs / first["run"] / "measure.json").read_text()) == first
    (stored,) = (workspace.root / "samples").glob("*.jsonl")
    whole = stored.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 3
    stored.write_bytes(lines[0] + lines[1][:20])  # as a kill leaves it
    code, out, err = run(*command)
    assert code == 0, err
    assert stored.read_bytes() == whole
    stored.write_bytes(whole.replace(json.loads(lines[0])["responses"][0]["text"].encode(), b"marked", 1))
    code, out, err = run("measure", "support", "a=tiny", "b=tiny", *command[3:])
    assert code == 0, err
    judged = (workspace.runs / json.loads(out)["run"] / "samples-a.jsonl").read_text(encoding="utf-8")
    assert json.loads(judged.splitlines()[0])["response"].startswith("marked")  # read, not generated again


def test_a_trained_policy_is_compared_with_its_base_and_its_rollouts_are_read(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    reward = ("--reward", f"{prompts.parent}/mine.py:even")
    small = ("--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4")
    rl = ("rl", "-w", workspace.root, "--policy", "tiny", "--prompts", prompts, *reward, "--steps", "1", "--json")
    code, out, err = run(*rl, *small, "--name", "trained", "--evaluate", "2", "--eval-prompts", prompts)
    assert code == 0, err
    trained = json.loads(out)["run"]
    plain = prompts.parent / "plain.jsonl"
    plain.write_text('{"prompt": "say it"}\n', encoding="utf-8")
    command = ("-w", workspace.root, "--prompts", plain, *SHORT, "--json")
    code, out, err = run("measure", "pass_at_k", "base=tiny", "trained", *command, *reward, "--pass-above", "0.5")
    assert code == 0, err
    rows = json.loads(out)["table"]
    assert [row["policy"] for row in rows] == ["base", "trained"] * 3
    assert all(row["change"] is not None for row in rows[1::2])
    code, out, err = run("measure", "pass_at_k", f"rollouts={trained}", "-w", workspace.root, "--json")
    assert code == 0, err
    assert json.loads(out)["table"][0]["prompts"] == 2
    code, out, err = run("measure", "seeds", f"grpo={trained},{trained}", "-w", workspace.root)
    assert code == 0, err
    assert "iqm" in out
    assert "held-out" not in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pass_at_kk", "tiny"), "did you mean pass_at_k"),
        (("pass_at_k", "a=tiny", "a=tiny"), "a label of its own"),
        (("pass_at_k", "tiny", "--set", "n=1"), "no setting of measure 'pass_at_k' is named 'n'"),
        (("pass_at_k", "tiny", "--set", "k"), "KEY=VALUE"),
        (("seeds", "no-such-run"), "is no run and no file"),
        (("pass_at_k", "rows.jsonl"), "needs prompt_id and response"),
    ],
)
def test_bad_input_is_one_line(
    workspace: Workspace,
    arguments: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"text": "no sample"}\n', encoding="utf-8")
    code, _, err = captured(capsys)("measure", *arguments, "-w", workspace.root)
    assert code == 2
    assert reason in err
    assert "Traceback" not in err
