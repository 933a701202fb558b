"""The environments that ship: their rules, their tasks, and what their players earn."""

import json
import random
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Observation
from assay_policy_training.plugins.environments.shipped import form_filling, text_shop, twenty_questions, two_agent_grid
from assay_policy_training.plugins.environments.shipped.demonstrations import PLAYED, write_demonstrations
from assay_policy_training.plugins.environments.shipped.form_filling import FormFilling
from assay_policy_training.plugins.environments.shipped.number_tree import NumberTree
from assay_policy_training.plugins.environments.shipped.text_shop import TextShop
from assay_policy_training.plugins.environments.shipped.twenty_questions import OBJECTS, TwentyQuestions
from assay_policy_training.plugins.environments.shipped.two_agent_grid import TwoAgentGrid, distances, moved
from assay_policy_training.plugins.prompts.source import prompts_digest
from assay_policy_training.recipe.loading import load_recipe

ROOT = Path(__file__).parents[3]


def answers(environment: Any, prompt: PromptItem, *turns: str) -> list[Any]:
    """What the environment says to each turn: a text, or the rewards of the end."""
    environment.reset(prompt, 3)
    said = []
    for text in turns:
        answer = environment.step(Action(text))
        said.append(answer.messages if isinstance(answer, Observation) else {**answer.rewards, **answer.turn_rewards})
    return said


def test_twenty_questions_answers_as_the_object_is() -> None:
    game = PromptItem((Message("user", "?"),), meta={"secret": "fox"})
    assert answers(TwentyQuestions(), game, "alive?", "Large?", "what", "fox") == ["yes", "no", "unclear", {"win": 1.0}]
    assert answers(TwentyQuestions(questions=2, cost=0.1), game, "wild?", "alive?")[1] == {"win": 0.0, "question": -0.1}
    assert answers(TwentyQuestions(), game, "cow.") == [{"win": 0.0}]
    drawn = TwentyQuestions()
    plain = PromptItem((Message("user", "?"),))
    secrets = {seed: [drawn.reset(plain, seed), drawn._secret][1] for seed in range(20)}
    assert secrets == {seed: [drawn.reset(plain, seed), drawn._secret][1] for seed in range(20)}
    assert len(set(secrets.values())) > 4
    assert len(set(OBJECTS.values())) == len(OBJECTS)  # the questions tell all of them apart


def test_a_form_is_filled_in_field_by_field() -> None:
    [person] = form_filling.tasks("1", seed=0, split="train")
    form = person.meta["form"]
    fields = [f"{name}={value}" for name, value in form.items()]
    assert answers(FormFilling(), person, *fields, "send") == [
        "empty: age, city", "empty: city", "empty: none", {"complete": 1.0}
    ]  # fmt: skip
    assert answers(FormFilling(), person, "age=old", "shoe=1", "send") == [
        "age: a number", "no field 'shoe'", {"complete": 0.0}
    ]  # fmt: skip
    environment = FormFilling()
    environment.reset(person, 0)
    earned = [environment.step(Action(text)).rewards for text in (fields[0], fields[0], "city=Nowhere")]
    assert [reward["field"] for reward in earned] == [pytest.approx(1 / 3), 0.0, 0.0]


def test_the_shop_sells_what_was_asked_for_and_fails_by_the_seed() -> None:
    errand = PromptItem((Message("user", "?"),), meta={"goods": ["mug", "tan", True]})
    calm = TextShop(popup=0, lost=0, restart=0)
    assert answers(calm, errand, "mug", "tan", "buy")[-1] == {"bought": 0.0}
    assert answers(calm, errand, "red", "mug", "tan", "wrap", "buy") == [
        "unclear. shop: mug pen lamp", "mug: red gray tan", "tan mug: wrap buy", "tan mug wrapped: buy", {"bought": 1.0}
    ]  # fmt: skip
    assert answers(TextShop(popup=1, lost=0, restart=0), errand, "mug", "tan", "close")[0] == "popup: close"
    assert answers(TextShop(popup=0, lost=1, clicks=2), errand, "mug", "mug") == [
        "no answer. shop: mug pen lamp", {"bought": 0.0}
    ]  # fmt: skip
    turns = ("mug", "tan", "wrap", "close", "mug", "tan")
    assert answers(TextShop(), errand, *turns) == answers(TextShop(), errand, *turns)
    assert len(text_shop.tasks("9", seed=0, split="train")) == 9


def test_numbers_are_combined_two_at_a_time() -> None:
    game = PromptItem((Message("user", "?"),), meta={"numbers": [2, 3, 4], "target": 20})
    assert answers(NumberTree(), game, "a+b", "b*c", "a*b") == ["a=5 b=4", "unclear", {"solved": 1.0}]
    assert answers(NumberTree(), game, "c-a", "b*a")[-1] == {"solved": 0.0}


def test_agents_stop_each_other_and_the_oracle_plans_around_it() -> None:
    assert moved(((0, 0), (1, 0)), "rl") == ((0, 0), (1, 0))  # they would change places
    assert moved(((0, 0), (1, 0)), "rr") == ((1, 0), (2, 0))
    assert moved(((0, 0), (3, 1)), "lu") == ((0, 0), (3, 1))  # walls
    task = PromptItem((Message("user", "?"),), meta={"at": [[0, 0], [1, 0]], "goals": [[1, 0], [0, 0]]})
    assert distances(((1, 0), (0, 0)))[((0, 0), (1, 0))] == 3
    said = answers(TwoAgentGrid(cost=0.1), task, "u", "l", "hop", "r", "w", "d", "w")
    assert said[0] == "A r1 B l1 at r1. A u. B:"
    assert said[2] == "unclear. A r1d1 B 0 at d1. A:"
    assert said[-1] == {"arrived": 1.0, "step": -0.1}
    assert two_agent_grid.play(task, [], [], random.Random(0), True) in "udrlw"


@pytest.mark.parametrize("name", ["form_filling", "number_tree", "text_shop", "twenty_questions", "two_agent_grid"])
def test_a_skilled_player_wins_and_an_unskilled_one_mostly_loses(name: str) -> None:
    module = import_module(f"assay_policy_training.plugins.environments.shipped.{name}")
    won = {}
    for skilled in (True, False):
        rng, wins = random.Random(0), []
        for prompt in module.tasks("64", seed=1, split="train"):
            environment, turns, observed = PLAYED[name](), list[str](), list[str]()
            if isinstance(environment, TextShop):
                environment.lost = environment.restart = 0.0  # so that skill decides
            answer: Any = environment.reset(prompt, 0)
            while isinstance(answer, Observation):
                turns.append(module.play(prompt, turns, observed, rng, skilled))
                answer = environment.step(Action(turns[-1]))
                if isinstance(answer, Observation):
                    observed.append(str(answer.messages))
            assert isinstance(answer, Done)
            win = answer.rewards[type(environment).parts[-1]]
            assert isinstance(win, float)
            wins.append(win)
        won[skilled] = sum(wins) / len(wins)
    assert won[True] == 1.0
    assert won[False] < 0.8


def test_tasks_of_one_prompt_are_told_apart_by_what_they_hide() -> None:
    games = twenty_questions.tasks("16", seed=1, split="train")
    assert len({game.prompt for game in games}) == 1
    assert len({game.task_id for game in games}) == len(OBJECTS) == 8
    played = replace(games[0], meta={**games[0].meta, EPISODE: {"turns": []}})
    assert played.task_id == games[0].task_id
    assert prompts_digest(games) != prompts_digest(games[::-1])


def test_tasks_follow_from_the_seed_and_the_splits_differ() -> None:
    for name in PLAYED:
        tasks = import_module(f"assay_policy_training.plugins.environments.shipped.{name}").tasks
        assert (
            tasks("8", seed=1, split="train") == tasks("8", seed=1, split="train") != tasks("8", seed=2, split="train")
        )
    assert len(twenty_questions.tasks("16", seed=0, split="heldout")) == 16


def test_demonstrations_are_rows_of_turns_as_the_policy_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    number = write_demonstrations("arithmetic", file, policy="tiny", episodes=6, skill=1.0)
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == number == 12
    first, second = rows[:2]
    assert first["prompt"][0]["content"].startswith("# Tools")
    assert '"calculator"' in first["completion"]
    assert [message["role"] for message in second["prompt"]] == ["user", "assistant", "tool"]
    assert second["completion"] == second["prompt"][-1]["content"]
    with pytest.raises(BadInputError, match="one of advantage_feedback, arithmetic"):
        write_demonstrations("form", file, policy="tiny")


@pytest.mark.parametrize("name", ["calculator", "deepsearch", "digirl", "form_filling", "read", "twenty_questions"])
def test_the_example_recipes_load(name: str) -> None:
    recipe = load_recipe(str(ROOT / "examples" / "policy_training" / f"{name}.yaml"))
    assert recipe.environment is not None
