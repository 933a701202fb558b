"""Options of `assay rl` beside the recipe: they are read with it, and what they leave unread or misname is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_policy_training.plugins.protocols import StopRule
from assay_policy_training.plugins.watch.stop_rules import NoProgress, OutOfBounds, missing_metrics
from assay_policy_training.recipe.loading import load_recipe, refuse_contradictions

SMALL = ("--policy", "tiny", "--steps", "1", "--prompts-per-step", "2", "--group-size", "2", "--max-new-tokens", "4")


def rl(place: Path, *arguments: str) -> int:
    for command in (["init", str(place)], ["rl", "--reward", "verifier", *SMALL, *arguments, "-w", str(place)]):
        with pytest.raises(SystemExit) as end:
            main(command)
    assert isinstance(end.value.code, int)
    return end.value.code


def test_an_option_counts_before_the_recipe_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """drpo wants `max_length` of at least `max_new_tokens`, which is 128 in the recipe and 4 on the command line."""
    assert rl(tmp_path / "w", "--recipe", "drpo", "--set", "objective.max_length=4", "--json", "--lr", "1e-05") == 0
    plan = json.loads(next((tmp_path / "w" / "runs").glob("*/plan.json")).read_text())
    assert plan["recipe"]["objective"]["max_length"] == 4
    assert plan["recipe"]["optimisation"]["lr"] == 1e-5
    assert plan["recipe"]["sampling"]["max_new_tokens"] == 4
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--lr", "2e-5", "--set", "optimisation.lr=1e-5"), "--lr says 2e-05, --set says optimisation.lr=1e-5"),
        (("--eval-prompts", "more.jsonl"), "field '--eval-prompts': say how many of them: --evaluate N"),
        (("--evaluate", "-3"), "--evaluate"),
        (("--watch", "helpful"), "field '--watch': no reward is named 'helpful'"),
    ],
)
def test_wrong_option_is_named(
    arguments: tuple[str, ...], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rl(tmp_path / "w", *arguments) == 2
    assert complaint in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("recipe", "override", "complaint"),
    [
        ("grpo", "filters.3.max_rounds=3", "'filters.3.max_rounds': there is no filters.3: the recipe lists 0"),
        ("dapo", "filters.2.max_rounds=3", "'filters.2.max_rounds': there is no filters.2: the recipe lists 2"),
    ],
)
def test_entry_that_a_chain_does_not_have_is_named(recipe: str, override: str, complaint: str) -> None:
    with pytest.raises(BadInputError, match=complaint):
        load_recipe(recipe, [override])


def test_rule_about_a_metric_that_does_not_exist_is_told_of() -> None:
    row = {"step": 1, "overoptimised": 0.0, "entropy": 2.0}
    rules: list[StopRule] = [
        OutOfBounds("overoptimized", above=0.5),
        OutOfBounds("entropy", below=0.1),
        NoProgress("nonsense"),
    ]
    first, second = missing_metrics(rules, row)
    assert first == "a stop rule watches 'overoptimized', which step 1 does not have; near it: overoptimised"
    assert second == "a stop rule watches 'nonsense', which step 1 does not have"


@pytest.mark.slow
def test_a_run_tells_of_its_rules_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stop = "stop=[{kind: out_of_bounds, metric: overoptimised, above: 0.5}]"
    assert rl(tmp_path / "w", "--set", stop) == 0
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("'overoptimised', which step 1 does not have" in text for text in said)
    caplog.clear()
    assert rl(tmp_path / "v", "--set", stop, "--watch", "verifier") == 0
    assert not any("stop rule" in record.getMessage() for record in caplog.records)


def test_an_option_and_an_override_of_one_key_agree() -> None:
    options = [("--lr", "optimisation.lr=1e-05"), ("--stop", 'sampling.stop=["END"]')]
    same = ("optimisation.lr=0.00001", "optimisation.lr=1e-5", "optimisation={lr: 1e-5}", "sampling.stop=[END]")
    for text in (*same, "optimisation={epochs: 2}", "kl.coefficient=1"):
        refuse_contradictions([text], options)
    other = ("optimisation.lr=2e-5", " optimisation.lr =2e-5", "optimisation={lr: 2e-5}", "sampling.stop=[STOP]")
    for text in (*other, "optimisation.lr=null", "optimisation.lr=[1"):
        with pytest.raises(BadInputError, match=r"says .*--set says .*give one of them"):
            refuse_contradictions([text], options)


def test_a_name_in_use_does_not_hide_what_else_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (Workspace.create(tmp_path / "w").models / "taken").mkdir()
    assert rl(tmp_path / "w", "--name", "taken", "--set", "sampling.max_prompt_tokens=4") == 2
    assert "more than 4 tokens" in capsys.readouterr().err.splitlines()[-1]
    assert rl(tmp_path / "w", "--name", "taken") == 2
    assert "a model 'taken' exists; choose another --name" in capsys.readouterr().err.splitlines()[-1]
    assert not list((tmp_path / "w" / "runs").glob("*"))
