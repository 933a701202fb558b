"""The example recipes of DigiRL, DeepSearch and ReAd train a step, on what a policy of random weights can do."""

from pathlib import Path
from typing import ClassVar

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.environments.environment import Action, Done, Environment, Observation
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.episode_rewards import EnvironmentReward
from assay_policy_training.training.loop import PolicyLoop

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "policy_training"
SMALL = ["sampling.prompts_per_step=6", "sampling.max_new_tokens=96", "episodes.turns=2", "environment.kind={}:Short"]


class Short(Environment):
    """Two turns; won where the first is the longer one, which is a matter of chance."""

    parts: ClassVar[tuple[str, ...]] = ("won",)
    copies: ClassVar[bool] = True

    def reset(self, prompt: PromptItem, seed: int) -> Observation:
        self._first = -1
        return Observation("Say.")

    def step(self, action: Action) -> Observation | Done:
        if self._first < 0:
            self._first = len(action.text)
            return Observation("Again.")
        return Done({"won": float(self._first >= len(action.text))})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [("digirl", ["estimator.share=0.5"]), ("deepsearch", ["sampler.width=2", "sampling.group_size=4"])],
)
def test_an_example_trains_and_resumes(name: str, settings: list[str], tmp_path: Path) -> None:
    items = [PromptItem((Message("user", f"Task {number}."),)) for number in range(6)]
    whole: dict[str, torch.Tensor] = {}
    for steps in (1, 2):  # the second time from a checkpoint of the first
        file = str(EXAMPLES / f"{name}.yaml")
        recipe = load_recipe(file, [*(setting.format(__file__) for setting in SMALL), *settings, "checkpoint_every=1"])
        policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
        loop = PolicyLoop(recipe, policy, ShuffledPrompts(items, seed=0), [EnvironmentReward()], tmp_path)
        assert loop.resume() == steps - 1
        (row,) = loop.train(steps)
        assert row["grad_norm"] > 0
        whole = {key: value.detach().clone() for key, value in loop.parameters.items()}
    (tmp_path / "straight").mkdir()
    straight = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    loop = PolicyLoop(recipe, straight, ShuffledPrompts(items, seed=0), [EnvironmentReward()], tmp_path / "straight")
    loop.train(2)
    assert all(torch.equal(value, whole[key]) for key, value in loop.parameters.items())
