"""Every shipped recipe trains: two steps of the tiny model, real rewards, a checkpoint, and the same again from it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.domain import Message
from assay.runs.callbacks import StepCallback
from assay_policy_training.core.config import Asynchrony
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.critics.value_model import ValueModel
from assay_policy_training.plugins.protocols import RewardSource
from assay_policy_training.plugins.samplers.recorded import RecordedResponses
from assay_policy_training.plugins.samplers.windowed import Windowed
from assay_policy_training.recipe.loading import load_recipe, recipe_from_dict, recipe_to_dict, shipped_recipes
from assay_policy_training.recipe.schema import Recipe
from assay_policy_training.rollouts.rewards import (
    AnswerPart,
    ModelReward,
    ProcessReward,
    RecordedReward,
    RowNumber,
    VerifierReward,
)
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.model_config import ModelConfig
from assay_serving.rubrics.description import RubricSpec
from assay_serving.rubrics.grading import RubricScorer
from assay_serving.verifiers import AllLowercase, Constraint, MaxWords, MinWords, NoCommas

CPU = torch.device("cpu")
#: What recipes may read of a prompt's row: a worked solution to take hints from, an answer, references, a data source.
META: dict[str, Any] = {
    "solution": "First think of a colour. Then name it: blue.",
    "answer": "blue",
    "hint": "It is a colour of the sky.",
    "references": ["a short answer", "another one"],
    "rubric": [
        {"text": "has no comma", "constraints": [{"kind": "no_commas"}]},
        {
            "text": "is short",
            "weight": 0.5,
            "constraints": [{"kind": "max_words", "limit": 5}, {"kind": "all_lowercase"}],
        },
    ],
    "reference_rewards": [-0.5, 0.1],
    "responses": [
        {"steps": ["think ", "blue"], "step_values": [0.5, 0.9, 1.0], "reward": 1.0},
        {"steps": ["red, ", "no"], "step_values": [0.5, 0.1, 0.0], "reward": 0.0},
        {"steps": ["A sky"], "step_values": [0.5, 0.8], "reward": 0.6},
        {"steps": ["Grass, ", "so ", "red"], "step_values": [0.5, 0.4, 0.7, 0.0], "reward": 0.1},
    ],
}

#: The common ones, one of each kind of sampler, some kinds of rewards; the others are left to `make test-all`.
ALWAYS = {"grpo", "ppo", "rloo", "dapo", "gspo", "reinforce_pp", "async_grpo", "online_dpo", "pav", "rlcr"}
ALWAYS |= {"a_lol", "t_ppo", "nash_md", "hapo", "rl_plus", "srpo", "dynamic_weighting", "gated_accumulation"}
NAMES = [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.slow) for name in shipped_recipes()]

#: How the policy's turn begins where a recipe reads a form that a tiny model does not write by itself.
FORCED = {
    "rlmt": "<think>so</think>",
    "rlcr": "<think>so</think><answer>blue</answer><analysis>sky</analysis><confidence>0.7</confidence>",
}


def items(forced: str = "") -> list[PromptItem]:
    checks: list[tuple[Constraint, ...]] = [(AllLowercase(),), (MaxWords(6),), (MinWords(4), NoCommas()), (NoCommas(),)]
    return [
        PromptItem(
            (Message("user", f"Name colour {number}."),),
            checks[number % 4],
            {**META, "source": "ab"[number % 2]},
            forced=forced,
        )
        for number in range(8)
    ]


def small(recipe: Recipe) -> Recipe:
    """The recipe with numbers for a model of a few thousand weights; its methods stay as they are."""
    sampling = replace(
        recipe.sampling, prompts_per_step=2, group_size=min(4, max(2, recipe.sampling.group_size)), max_new_tokens=7
    )
    sampling = replace(sampling, max_prompt_tokens=128)
    optimisation = replace(recipe.optimisation, micro_batch_rows=3, lr=1e-3, warmup_steps=0, autocast=False)
    teacher = "tiny" if recipe.needs_teacher else None
    if isinstance(recipe.sampler, Windowed):
        recipe = replace(recipe, sampler=Windowed(window=5))
    if recipe.asynchrony.staleness:  # what a matter of time decides is not the same twice
        recipe = replace(recipe, asynchrony=Asynchrony(lag=1))
    if isinstance(recipe.critic, ValueModel):
        warmup = min(1, recipe.critic.warmup_steps)
        recipe = replace(recipe, critic=replace(recipe.critic, lr=1e-3, warmup_steps=warmup))
    return replace(recipe, sampling=sampling, optimisation=optimisation, steps=2, checkpoint_every=1, teacher=teacher)


def sources(recipe: Recipe, model: Path) -> list[RewardSource]:
    own: list[RewardSource] = [RecordedReward() if isinstance(recipe.sampler, RecordedResponses) else VerifierReward()]
    return [*own, *model_parts(recipe.name, str(model))]


def model_parts(recipe: str, model: str) -> list[RewardSource]:
    """The parts that a recipe asks for by name beside the verifier's, of two small reward models."""
    names = {
        "awm": ["quality"],
        "carl": ["quality"],
        "clip_delta": ["process"],
        "constrained_rlhf": ["quality"],
        "dpa": ["helpfulness", "verbosity"],
        "dynamic_weighting": ["quality"],
        "dynamic_weighting_gradient": ["quality"],
        "gated_accumulation": ["quality"],
        "inpo": ["quality"],
        "maxmin": ["majority", "minority"],
        "mrt": ["process"],
        "pav": ["process"],
        "process_grpo": ["process"],
        "tp_grpo": ["process"],
        "nash_md": ["quality"],
        "online_dpo": ["quality"],
        "prdp": ["quality"],
        "risk_averse": ["quality"],
        "rl_plus": ["quality"],
        "srpo": ["quality"],
        "rlmt": ["answer"],
        "trust_grpo": ["thinking"],
    }.get(recipe, [])
    parts: list[RewardSource] = [RowNumber("direction")] if recipe == "dpa" else []
    if recipe == "rubric_anchors":
        parts.append(ModelReward(RubricScorer(RubricSpec(), {}, name="rubric")))
    for number, name in enumerate(names):
        scorer = TransformersScorer.load(ModelConfig(model))
        if number:  # another model: it prefers what the first does not
            with torch.no_grad():
                scorer.model.score.weight.neg_()
        if name == "process":
            parts.append(ProcessReward(scorer, separator=" "))
        else:
            parts.append(ModelReward(scorer, name=name, answer=AnswerPart() if name == "answer" else None))
    return parts


def trainer(recipe: Recipe, folder: Path, model: Path) -> PolicyLoop:
    torch.manual_seed(0)
    folder.mkdir(exist_ok=True)
    policy = Policy(
        "tiny",
        device=CPU,
        max_prompt_tokens=128,
        with_reference=recipe.needs_reference,
        lora=recipe.lora,
        teacher=recipe.teacher,
    )
    prompts = recipe.source.open(items(FORCED.get(recipe.name, "")), seed=recipe.seed, policy=policy)
    return PolicyLoop(recipe, policy, prompts, sources(recipe, model), folder)


@pytest.mark.parametrize("name", NAMES)
def test_recipe_trains_and_resumes(name: str, tmp_path: Path, tiny_reward_model: Path) -> None:
    recipe = load_recipe(name)
    assert recipe.paper, "a recipe says what it follows"
    assert recipe_from_dict(recipe_to_dict(recipe)) == recipe
    recipe = small(recipe)
    whole = trainer(recipe, tmp_path / "whole", tiny_reward_model)
    before = {key: value.detach().clone() for key, value in whole.parameters.items()}

    def keep_killed(row: Mapping[str, Any]) -> None:
        """What a run leaves that is killed before its second checkpoint: the first, and logs of two steps."""
        if row["step"] == 2:
            shutil.copytree(whole.folder, tmp_path / "killed")

    rows = whole.train(callbacks=[StepCallback(keep_killed)])
    moved = any(not torch.equal(value, before[key]) for key, value in whole.parameters.items())
    assert moved or isinstance(recipe.sampler, Windowed), "nothing was learnt"  # no window ends in two steps
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert all(math.isfinite(v) for v in row.values() if isinstance(v, float)), row
    again = trainer(recipe, tmp_path / "killed", tiny_reward_model)
    assert again.resume() == 1
    again.train()
    for key, value in whole.parameters.items():
        assert torch.equal(value, again.parameters[key]), f"{key} differs after a resume"
