"""`assay rl --resume` refuses what it would otherwise leave unread, and asks the model that the run began with."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.cli.main import main
from assay.errors import BadInputError
from assay_policy_training.rollouts.reward_uri import recorded_reward


@pytest.mark.parametrize(
    "given",
    [
        ("--set", "optimisation.lr=1"),
        ("--lr", "0.1"),
        ("--seed", "3"),
        ("--group-size", "4"),
        ("--watch", "verifier"),
        ("--recipe", "dapo"),
        ("--policy", "tiny"),
        ("--prompts", "constrained:3"),
        ("--evaluate", "4"),
        ("--eval-prompts", "more.jsonl"),
        ("--device", "cpu"),
        ("--track", "tensorboard"),
        ("--model", "other"),  # without --reward there is nothing that it could be the model of
    ],
)
def test_a_resumed_run_keeps_its_plan(
    given: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "w")
    for command in (["init", place], ["rl", "--resume", "run-0", *given, "-w", place]):
        with pytest.raises(SystemExit) as end:
            main(command)
    assert end.value.code == 2
    assert f"a resumed run keeps its settings; leave out {given[0]}" in capsys.readouterr().err


def test_what_may_be_given_anew_is_not_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "w")
    anew = ["--steps", "9", "--name", "n", "--reward", "verifier", "--model", "m", "--parallel", "ddp", "--wait", "1"]
    anew += ["--deadline", "60"]
    for command in (["init", place], ["rl", "--resume", "run-0", *anew, "-w", place]):
        with pytest.raises(SystemExit) as end:
            main(command)
    assert end.value.code == 3
    assert "run-0 is not a policy training" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("http://h:1", "http://h:1#m"),
        ("quality=http://h:1", "quality=http://h:1#m"),
        ("steps:http://h:1/x", "steps:http://h:1/x#m"),
        ("http://h:1#own", "http://h:1#own"),
        ("verifier", "verifier"),
        ("row:quality", "row:quality"),
    ],
)
def test_the_model_of_the_command_is_part_of_the_plan(reference: str, expected: str) -> None:
    """Else a resumed run would ask the server's first model."""
    assert recorded_reward(reference, "m") == expected
    assert recorded_reward(reference, None) == reference


def test_a_reference_that_names_nothing_is_refused_with_a_model_too() -> None:
    with pytest.raises(BadInputError, match="no reward is named 'some-model'"):
        recorded_reward("some-model", "m")
