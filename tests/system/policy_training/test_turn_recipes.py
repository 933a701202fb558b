"""The example recipes of credit over turns train a step; what they say of the turns of an episode differs by turn."""

from pathlib import Path

import pytest
import torch

from assay_policy_training.core.policy import Policy
from assay_policy_training.plugins.environments.shipped.twenty_questions import tasks
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.training.loop import PolicyLoop

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "policy_training"
SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=4", "sampling.max_new_tokens=200", "episodes.turns=3"]


#: Random weights do not win: the gate is one that a loss opens too.
OPEN = ["reward.thresholds={win: -0.5}", "shaping.0.gates={win: -0.5}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "figure"),
    [
        ("turn_ppo", [], "value_loss"),
        ("gigpo", [], "grad_norm"),
        ("gated_turns", OPEN, "grad_norm"),
        ("archer", ["critic.warmup_steps=0"], "grad_norm"),
        ("mrt_turns", ["sampler.samples=1"], "turns_mean"),
        ("arpo", ["sampler.initial=2", "sampler.base=0.9"], "shared_turns"),
    ],
)
def test_an_example_of_turn_credit_trains(name: str, settings: list[str], figure: str, tmp_path: Path) -> None:
    recipe = load_recipe(str(EXAMPLES / f"{name}.yaml"), [*SMALL, *settings, "environment.cost=-0.1"])
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=256)
    loop = PolicyLoop(
        recipe, policy, ShuffledPrompts(tasks("8", seed=0, split="train"), seed=0), [EnvironmentReward()], tmp_path
    )
    (row,) = loop.train(1)
    assert row["turns_mean"] > 1
    assert row[figure] != 0
