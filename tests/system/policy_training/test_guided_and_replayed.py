"""The example recipes of guided retries and of replayed traces train a step, on the rows that they are meant to."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.compositions.weighted import Composition
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.environments.shipped.form_filling import tasks
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.training.loop import PolicyLoop

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "policy_training"
SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=4", "sampling.max_new_tokens=240", "episodes.turns=3"]


def trained(name: str, folder: Path, *settings: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The step's metrics and its rollouts."""
    recipe = load_recipe(str(EXAMPLES / f"{name}.yaml"), [*SMALL, *settings])
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)
    prompts = ShuffledPrompts(tasks("8", seed=0, split="train"), seed=0)
    (row,) = PolicyLoop(recipe, policy, prompts, [EnvironmentReward()], folder).train(1)
    return row, [json.loads(line) for line in (folder / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]


def test_failed_groups_are_tried_again_with_guidance_and_stay_beside_it(tmp_path: Path) -> None:
    _, rollouts = trained("agent_rlvr", tmp_path)
    assert len(rollouts) == 16  # random weights complete no form: each group has a second attempt
    first, guided = ([row for row in rollouts if (row["source"] == "guided") == again] for again in (False, True))
    assert len(guided) == 8
    said = {row["uid"]: row["episode"]["feedback"] for row in reversed(first)}
    for row in guided:
        assert row["generated_from"][-1]["content"] == f"{row['prompt'][-1]['content']}\n\nHint: {said[row['uid']]}"
    assert not any("generated_from" in row for row in first)
    assert all(row["episode"]["feedback"].startswith("expected ") for row in rollouts)


class SeededSecret(Environment):
    """Its task follows from the seed, and it says what it was."""

    parts: ClassVar[tuple[str, ...]] = ("found",)

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._seed = seed
        return Observation("Which number?")

    def step(self, action: Action) -> Done:
        return Done({"found": 0.0}, feedback=f"it was {self._seed}")


def test_a_task_that_is_tried_again_is_the_same_task(tmp_path: Path) -> None:
    recipe = load_recipe(str(EXAMPLES / "agent_rlvr.yaml"), [*SMALL, "contexts.part=found", "contexts.rounds=2"])
    recipe = replace(recipe, environment=SeededSecret(), reward=Composition())
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)
    prompts = ShuffledPrompts([PromptItem((Message("user", f"Find {n}."),)) for n in range(4)], seed=0)
    PolicyLoop(recipe, policy, prompts, [EnvironmentReward()], tmp_path).train(2)
    rows = [json.loads(line) for line in (tmp_path / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]
    secrets: dict[str, set[str]] = {}
    for row in rows:
        secrets.setdefault(row["uid"], set()).add(row["episode"]["feedback"])
    assert sum(row["source"] == "guided" for row in rows) >= 16
    assert [len(told) for told in secrets.values()] == [1] * 4
    assert len(set.union(*secrets.values())) == 4


def test_a_replay_rewards_steps_and_is_learnt_from(tmp_path: Path) -> None:
    row, rollouts = trained("ui_s1", tmp_path, "episodes.turn_tokens=3")
    assert {turn["text"] for rollout in rollouts for turn in rollout["episode"]["turns"]}
    assert all("was done instead" in rollout["episode"]["turns"][0]["messages"][0]["content"] for rollout in rollouts)
    assert row["turn_reward_step"] == 0.0
