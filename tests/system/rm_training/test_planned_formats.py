"""Under autocast on a GPU the products of a planned step are bfloat16: those of heads alone are not."""

from dataclasses import replace

import pytest

from assay.planning.cards import CARDS
from assay.planning.request import PlanRequest
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.training.plan import PlannedPolicy
from assay_policy_training.training.run import Plan
from assay_rm_training.methods.method import method_of
from assay_rm_training.plan import PlannedRewardModel
from assay_rm_training.training_config import LoraConfig, TrainingConfig

CARD, REQUEST = CARDS["h100"], PlanRequest(prompt_tokens=20, response_tokens=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lora"), [("bt", None), ("bt", LoraConfig(4)), ("dpo", None)], ids=["bt", "lora", "dpo"]
)
def test_of_a_reward_models_step(name: str, lora: LoraConfig | None) -> None:
    config = TrainingConfig(base="tiny", dtype="bfloat16", batch_size=4, micro_batch_tokens=200, lora=lora)
    training = PlannedRewardModel(method_of({"name": name}), config, CARD, REQUEST, None)
    assert training.measure(200).cost.float32_share < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_of_a_policys_step(name: str) -> None:
    recipe = load_recipe(name, ["sampling.prompts_per_step=2", "sampling.group_size=2", "sampling.max_new_tokens=8"])
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, autocast=True))
    plan = Plan(recipe=recipe, policy="tiny", prompts=("none",), rewards=(), name="planned")
    planned = PlannedPolicy(plan, "tiny", CARD, REQUEST)
    assert planned.measure(2).cost.float32_share < 1e-3
