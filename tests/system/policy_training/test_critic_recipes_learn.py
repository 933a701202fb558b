"""With a critic, with whitened returns and in windows, recipes raise a reward that the tiny model can learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.critics.value_model import ValueModel
from assay_policy_training.plugins.protocols import Rewards
from assay_policy_training.plugins.samplers.windowed import Windowed
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.loop import PolicyLoop

CPU = torch.device("cpu")
ITEMS = [PromptItem((Message("user", f"Name colour {number}."),)) for number in range(8)]


class LowerCase:
    """The share of lower-case letters: near 0.15 at first."""

    def score(self, items: Sequence[PromptItem], responses: Sequence[str]) -> Rewards:
        shares = [sum(c.islower() for c in text) / max(1, len(text)) for text in responses]
        return Rewards({"lower": torch.tensor(shares, dtype=torch.float64)}, [()] * len(items), [{}] * len(items))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [("ppo_hl_gauss", 12), ("reinforce_pp", 12), ("t_ppo", 30)],
)
def test_reward_rises(name: str, steps: int, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    prompts = 16 // recipe.sampling.group_size
    changes: dict[str, Any] = {
        "sampling": replace(recipe.sampling, prompts_per_step=prompts, max_new_tokens=12, max_prompt_tokens=128),
        "optimisation": replace(recipe.optimisation, lr=1e-2, minibatches=2, micro_batch_rows=32),
        "steps": steps,
        "checkpoint_every": 0,
    }
    if isinstance(recipe.sampler, Windowed):
        changes["sampler"] = Windowed(window=6)
    if isinstance(recipe.critic, ValueModel):
        warmup = min(2, recipe.critic.warmup_steps)
        changes["critic"] = replace(recipe.critic, lr=3e-3, warmup_steps=warmup, micro_batch_rows=32)
    recipe = replace(recipe, **changes)
    torch.manual_seed(0)
    policy = Policy("tiny", device=CPU, max_prompt_tokens=128, with_reference=recipe.needs_reference)
    order = recipe.source.open(ITEMS, seed=0, policy=policy)
    rows = PolicyLoop(recipe, policy, order, [LowerCase()], tmp_path).train()
    rewards = [row["reward_mean"] for row in rows if "reward_mean" in row]
    assert sum(rewards[:3]) / 3 < 0.25
    assert sum(rewards[-3:]) / 3 > 0.5
