"""`assay rl` with what a user brings: reward functions in the forms of TRL and verl, and their faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.workspace import Workspace
from support.assay_command import captured

SMALL = ("--policy", "tiny", "--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4", "--steps", "1")

FUNCTIONS = """
import asyncio
import threading


def trl(completions, answer, **columns):
    assert all(isinstance(completion, str) for completion in completions)
    return [float(len(completion)) for completion in completions]


async def judged(prompt, response, **row):
    await asyncio.sleep(0)
    return 0.5


def moody(prompt, response, answer, **row):
    if answer == "4":
        raise ValueError("bad mood")
    return 1.0


def hangs(prompt, response, answer, **row):
    if answer == "4":
        threading.Event().wait()
    return 1.0
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FUNCTIONS, encoding="utf-8")
    rows = [{"prompt": "2+2?", "answer": "4"}, {"prompt": "3+3?", "answer": "6"}]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def rollouts(payload: dict[str, Any]) -> list[dict[str, Any]]:
    lines = (Path(payload["folder"]) / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_functions_reward_a_run_and_a_fault_fails_its_rows(
    workspace: Workspace, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = captured(capsys)
    common = ("rl", "-w", workspace.root, *SMALL, "--prompts", own / "sums.jsonl", "--json")
    functions = ("--reward", f"{own}/mine.py:trl", "--reward", f"judge={own}/mine.py:judged")
    code, out, err = run(*common, "--name", "functions", *functions)
    assert code == 0, err
    rows = rollouts(json.loads(out))
    assert all(row["reward"] == len(row["response"]) + 0.5 and row["parts"]["judge"] == 0.5 for row in rows)
    for name, reason in (("moody", "ValueError: bad mood"), ("hangs", "no answer in 0.3 s")):
        masked = (*common, "--name", name, "--reward", f"{own}/mine.py:{name}", "--reward-timeout", "0.3")
        code, out, err = run(*masked)
        assert code == 0, err
        payload = json.loads(out)
        assert payload["last_step"]["rewards_missing"] == 2
        failed = [row for row in rollouts(payload) if row["reward"] is None]
        assert len(failed) == 2
        assert all(reason in str(row["failures"]) for row in failed)
    code, out, err = run(*common, "--name", "stopped", "--reward", f"{own}/mine.py:moody", "--on-reward-error", "stop")
    assert code != 0
    assert "bad mood" in out + err
