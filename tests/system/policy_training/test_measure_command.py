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
    after = json.loads((workspace.runs / trained / "evaluation.json").read_text(encoding="utf-8"))["after"]
    assert [(figure["k"], figure["prompts"]) for figure in after["pass_at_k"]] == [(1, 2), (2, 2), (4, 2)]
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
    code, out, err = run("measure", "transfer", f"sums={trained}", "-w", workspace.root, "--json")
    assert code == 0, err
    assert json.loads(out)["table"][0]["change"] is not None


def test_chains_are_judged_by_a_reward_and_policies_are_compared_by_several(
    workspace: Workspace, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    (prompts.parent / "judge.py").write_text(
        "def chain(prompt, response, **row):\n    raise ValueError('unreadable')\n", encoding="utf-8"
    )
    rewards = ("--reward", f"judge={prompts.parent}/judge.py:chain", "--reward", f"{prompts.parent}/mine.py:even")
    command = ("-w", workspace.root, "--prompts", prompts, *SHORT, *rewards, "--json")
    code, out, err = run("measure", "ceiling", "a=tiny", "b=tiny", *command)
    assert code == 0, err
    rows = {(row["reward"], row["policy"]): row for row in json.loads(out)["table"]}
    assert (rows["judge", "a"]["mean"], rows["judge", "a"]["missing"]) == (None, 12)
    assert rows["even", "a"]["mean"] == rows["even", "b"]["mean"] is not None
    assert rows["verified", "a"]["samples"] == 12
    code, out, err = run("measure", "cot_pass_at_k", "a=tiny", *command)
    assert code == 0, err
    row = json.loads(out)["table"][0]
    assert row["unreadable"] == row["right_answers"] == row["unjudged"]
    code, out, err = run("measure", "distillation", "base=tiny", "sft=tiny", *command)
    assert code == 0, err
    code, out, err = run("measure", "formats", "a=tiny", *command)
    assert code == 0, err
    assert sum(row["share"] for row in json.loads(out)["table"]) == pytest.approx(1.0)


def test_a_policy_is_at_distance_0_from_the_target_where_all_rewards_are_equal(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = captured(capsys), tmp_path / "choices.jsonl"
    rows = [
        {"prompt": "a, b or c?", "responses": [{"text": text, "reward": 2.0} for text in ("a", "b", "c c")]},
        {
            "prompt": "yes?",
            "responses": [{"text": "yes", "reward": 1.0}, {"tokens": [5], "logprobs": [-9], "reward": 0}],
        },
    ]
    path.write_text(json.dumps(rows[0]) + "\n", encoding="utf-8")
    command = ("measure", "tilted", "reference=tiny", "policy=tiny", "-w", workspace.root, "--prompts", path, "--json")
    code, out, err = run(*command, "--set", "beta=0.5")
    assert code == 0, err
    payload = json.loads(out)
    assert [row["kl_to_target"] for row in payload["table"]] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert [row["response"] for row in payload["responses"]] == ["a", "b", "c c"] * 2
    assert 0 < payload["table"][0]["mass"] < 1
    path.write_text(json.dumps(rows[1]) + "\n", encoding="utf-8")
    code, out, err = run(*command, "--set", "beta=0.5")
    assert code == 0, err
    yes, no = json.loads(out)["responses"][:2]
    odds = (yes["target"] / no["target"]) / (yes["probability"] / no["probability"])
    assert odds == pytest.approx(7.389056, rel=1e-6)  # exp(1 / 0.5)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("pass_at_kk", "tiny"), "did you mean pass_at_k"),
        (("pass_at_k", "a=tiny", "a=tiny"), "a label of its own"),
        (("pass_at_k", "tiny", "--set", "n=1"), "no setting of measure 'pass_at_k' is named 'n'"),
        (("pass_at_k", "tiny", "--set", "k"), "KEY=VALUE"),
        (("seeds", "no-such-run"), "is no run and no file"),
        (("tilted", "a=tiny", "b=tiny", "--limit", "1"), "no recorded response"),
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
