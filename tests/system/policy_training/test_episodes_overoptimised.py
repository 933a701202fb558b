"""A policy that games what episodes are paid for: the alarm rings, and not where the goal itself is trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.training.held_out_reward import HeldOutReward, WatchSettings
from assay_policy_training.training.loop import PolicyLoop


class Desk(Environment):
    """A request that a turn with one of the common letters settles. Turns are paid for: a proxy of work, which idling
    earns."""

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        return Observation()

    def step(self, action: Action) -> Observation | Done:
        if set(action.text.lower()) & set("aeioutnsrhdl"):
            return Done(turn_rewards={"effort": 1.0})
        return Observation("Well?", rewards={"effort": 1.0})

    def cut(self) -> Done:
        return Done()


class Promptness:
    """The goal: settled, and in few turns."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        records = [item.meta[EPISODE] for item in items]
        worth = [(record["ended"] == "done") / max(1, len(record["turns"])) for record in records]
        return Rewards({"prompt": torch.tensor(worth, dtype=torch.float64)}, [()] * len(items), [{} for _ in items])


@pytest.mark.slow
@pytest.mark.parametrize("gamed", [True, False])
def test_the_alarm_rings_where_turns_are_paid_for(gamed: bool, tmp_path: Path) -> None:
    words = [
        "seed=5",
        f"environment={{kind: {__file__}:Desk}}",
        "episodes={turns: 4, turn_tokens: 3}",
        "metrics=[{kind: alarm}]",
    ]
    recipe = load_recipe("dr_grpo", [*words, "steps=14", "optimisation.lr=1e-2", "report_kl=true"])
    recipe = replace(recipe, sampling=replace(recipe.sampling, prompts_per_step=2, group_size=24, max_new_tokens=140))
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=True)
    source = recipe.source.open([PromptItem((Message("user", "Settle it."),))], seed=5, policy=policy)
    watch = HeldOutReward([Promptness()], tmp_path, WatchSettings(share=1.0))
    reward = EnvironmentReward() if gamed else Promptness()
    rows = PolicyLoop(recipe, policy, source, [reward], tmp_path, extra=[watch]).train()
    assert any(row["alarm"] for row in rows) is gamed
