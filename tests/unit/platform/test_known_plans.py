"""The line before a training: from a plan that was made for it, or how to make one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from assay.planning.cards import GIB, Card
from assay.planning.fake_step import ACTIVATIONS, PARAMETERS, StepCost
from assay.planning.known_plans import keep_plan, plan_command, plan_line, rows_of
from assay.planning.plan import MeasuredStep, MemoryPlan

CARD = Card("this machine", 24 * GIB, {"float32": 1e11}, 1e10, kernels="cpu")
COST = StepCost({PARAMETERS: GIB, ACTIVATIONS: 2 * GIB})
PLAN = MemoryPlan(CARD, "--micro-batch-tokens", 2048, MeasuredStep(COST, 2048, 1, 2048, weights=1), 14157, {})
COMMAND = "assay plan train bt --base tiny ..."


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path))
    return tmp_path


def line(
    base: str = "tiny", settings: object = 16, card: str = CARD.name, ranks: int = 1, rows: str = "pairs.jsonl"
) -> str:
    return plan_line(base, {"batch_size": settings}, card, CARD.usable, ranks, rows, COMMAND)


def test_a_plan_that_was_made_is_told_in_a_line() -> None:
    keep_plan(PLAN, "tiny", {"batch_size": 16}, 1, "pairs.jsonl")
    expected = (
        "plan: peak 3.0 GiB of 24.0 GiB (this machine) with --micro-batch-tokens 2048; up to 14157 fits; of pairs.jsonl"
    )
    assert line() == expected


def test_of_another_model_setting_card_rows_or_number_of_processes_there_is_none(tmp_path: Path) -> None:
    keep_plan(PLAN, "tiny", {"batch_size": 16}, 1, "pairs.jsonl")
    (tmp_path / "config.json").write_text("{}")
    for other in (line(base=str(tmp_path)), line(settings=8), line(card="h100"), line(ranks=2), line(rows="b")):
        assert other.startswith("plan: none yet for ")
        assert other.endswith(COMMAND)


def test_a_plan_is_of_a_file_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text("{}")
    before = rows_of(str(file))
    os.utime(file, (1, 1))
    assert before != rows_of(str(file))
    assert rows_of("pairs", "snap-1") == "pairs (snap-1)"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("/bin/assay train bt --base tiny --data a.jsonl", "assay plan train bt --base tiny --data a.jsonl"),
        ("/x/assay/cli/__main__.py rl --policy tiny", "assay plan --ranks 2 rl --policy tiny"),
        ("/bin/assay train bt --resume=last", ""),
        ("/bin/assay rl --seeds 3", ""),
        ("train.py train bt", ""),
        ("/bin/pytest tests", ""),
    ],
)
def test_the_command_is_that_of_the_training(arguments: str, command: str) -> None:
    assert plan_command(arguments.split(), 2 if "--ranks" in command else 1) == command
    assert "..." not in plan_line("tiny", {}, "h100", GIB, 1, "a", command)


def test_one_that_does_not_fit_warns() -> None:
    measured = replace(PLAN.measured, cost=StepCost({PARAMETERS: 30 * GIB}))
    keep_plan(replace(PLAN, measured=measured, largest=0), "tiny", {"batch_size": 16}, 1, "pairs.jsonl")
    assert line().startswith("plan: warning: does not fit: peak 30.0 GiB of 24.0 GiB")
    assert "not even the smallest fits" in line()


def test_a_broken_or_unwritable_cache_is_no_error(cache: Path) -> None:
    keep_plan(PLAN, "tiny", {"batch_size": 16}, 1, "a")
    (kept,) = (cache / "plans").iterdir()
    kept.write_text("{")
    assert "none yet" in line()
    kept.unlink()
    kept.parent.rmdir()
    kept.parent.write_text("a file")
    keep_plan(PLAN, "tiny", {"batch_size": 16}, 1, "a")
    assert "none yet" in line()
