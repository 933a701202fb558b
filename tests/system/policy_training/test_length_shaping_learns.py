"""Rewards by length shorten what a policy says, and what a verifier accepts stays accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import NoCommas


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share"),
    [("kimi_length", 0.85), ("self_rewarded_efficiency", 0.7), ("dler", 0.7)],
)
def test_responses_get_shorter(name: str, share: float, tmp_path: Path) -> None:
    recipe = load_recipe(name)
    recipe = replace(
        recipe,
        sampling=replace(recipe.sampling, prompts_per_step=4, group_size=8, max_new_tokens=48, temperature=1.0),
        optimisation=replace(recipe.optimisation, lr=5e-3, minibatches=1, warmup_steps=0),
        checkpoint_every=0,
        seed=1,
    )
    torch.manual_seed(0)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=recipe.needs_reference)
    items = [PromptItem((Message("user", f"Name colour {n}."),), (NoCommas(),)) for n in range(8)]
    rows = PolicyLoop(recipe, policy, ShuffledPrompts(items, seed=0), [VerifierReward()], tmp_path).train(15)
    before, after = (sum(row["length_mean"] for row in part) / 3 for part in (rows[:3], rows[-3:]))
    assert after < share * before
    accepted = [sum(row["verifier_pass_rate"] for row in part) / 3 for part in (rows[:3], rows[-3:])]
    assert accepted[1] > accepted[0] - 0.1
