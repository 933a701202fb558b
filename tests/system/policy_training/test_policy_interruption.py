"""Ctrl-C in `assay rl`: the run says its name when it starts, and how to resume it when it is stopped."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from assay.cli.main import main
from assay_policy_training.training.loop import PolicyLoop

SMALL = ("--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4")
ASKED = ("rl", "--recipe", "dr_grpo", "--reward", "verifier", "--policy", "tiny", "--prompts", "constrained:4", *SMALL)


def interrupted_at(monkeypatch: pytest.MonkeyPatch, error: BaseException, step: int) -> None:
    """Raise `error` where the step `step` would begin."""
    made = PolicyLoop._step

    def stopped(self: PolicyLoop, number: int) -> dict[str, Any]:
        if number == step:
            raise error
        return made(self, number)

    monkeypatch.setattr(PolicyLoop, "_step", stopped)


def command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([*map(str, arguments)])
    printed = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out, printed.err


def test_an_interrupted_run_says_how_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-w", tmp_path / "w")
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    often = ("--steps", "3", "--set", "checkpoint_every=1", *where)
    with monkeypatch.context() as patch:
        interrupted_at(patch, KeyboardInterrupt(), 2)
        code, _, err = command(capsys, *ASKED, *often)
    assert code == 130
    assert err.splitlines()[-1] == "assay: interrupted"
    told = re.search(r"resume with: assay rl --resume (run-\S+)", err)
    assert told
    assert f"run {told[1]} (" in err
    code, out, err = command(capsys, "rl", "--resume", told[1], "--json", *where)
    assert code == 0, err
    assert json.loads(out)["resumed_at"] == 1
    # Nobody asked for an evaluation: no file that holds none.
    assert not (Path(json.loads(out)["folder"]) / "evaluation.json").exists()


def test_a_run_that_is_asked_to_end_finishes_its_step_and_saves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("-w", tmp_path / "w")
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    made = PolicyLoop._step

    def asked(self: PolicyLoop, number: int) -> dict[str, Any]:
        if number == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return made(self, number)

    with monkeypatch.context() as patch:
        patch.setattr(PolicyLoop, "_step", asked)
        code, _, err = command(capsys, *ASKED, "--steps", "3", *where)
    assert code == 130
    told = re.search(r"resume with: assay rl --resume (run-\S+)", err)
    assert told, "no step was one of those that are saved by themselves"
    code, out, err = command(capsys, "rl", "--resume", told[1], "--json", *where)
    assert code == 0, err
    assert json.loads(out)["resumed_at"] == 2
    code, out_whole, err = command(capsys, *ASKED, "--steps", "3", "--name", "whole", "--json", *where)  # no break
    assert code == 0, err
    measured = ("loss", "grad_norm", "reward_mean", "entropy")
    resumed, whole = (json.loads(text)["last_step"] for text in (out, out_whole))
    assert {key: resumed.get(key) for key in measured} == {key: whole.get(key) for key in measured}


def test_what_cannot_be_gone_on_with_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command(capsys, "init", tmp_path / "w")[0] == 0
    interrupted_at(monkeypatch, KeyboardInterrupt(), 2)
    code, _, err = command(capsys, *ASKED, "-w", tmp_path / "w")
    assert code == 130
    assert "stopped before the first checkpoint (--set checkpoint_every=20)" in err
    assert "resume with" not in err
