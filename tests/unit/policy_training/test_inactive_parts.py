"""Parts of a recipe that cannot act in the set-up at hand are named; updates a batch are what the header says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.recipe.inactive import inactive_parts
from assay_policy_training.recipe.loading import load_recipe, shipped_recipes
from assay_policy_training.recipe.shipped import recipe_text
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import MaxWords

NUMBERS = {"one": 1, "two": 2, "four": 4, "eight": 8, "sixteen": 16}
CLAIM = re.compile(r"\b(\w+) (?:updates?|optimiser steps?|minibatches) a batch")
SMALL = ["sampling.prompts_per_step=2", "sampling.group_size=4", "sampling.max_new_tokens=5", "report_kl=false"]

#: What the official scripts do, read there.
OFFICIAL = {
    **dict.fromkeys(("ngrpo", "psr", "nsr", "w_reinforce", "effective_rank", "gain_rl", "drpo", "pacs"), 4),
    **dict.fromkeys(("laser", "laser_d", "guide_grpo"), 2),
    **dict.fromkeys(("hapo", "steer"), 16),
    "skywork_or1": 1,
}


def parts(name: str, *overrides: str) -> list[str]:
    return sorted(re.split(r"[ ,]", part)[0] for part in inactive_parts(load_recipe(name, overrides)))


@pytest.mark.parametrize("name", shipped_recipes())
def test_the_header_states_the_updates_a_batch(name: str) -> None:
    header = "\n".join(line for line in recipe_text(name).splitlines() if line.startswith("#"))
    claims = {NUMBERS[number.lower()] for number in CLAIM.findall(header)}
    assert claims == {load_recipe(name).optimisation.updates_per_batch}


@pytest.mark.parametrize("name", OFFICIAL)
def test_updates_a_batch_are_those_of_the_official_script(name: str) -> None:
    assert load_recipe(name).optimisation.updates_per_batch == OFFICIAL[name]


@pytest.mark.parametrize(
    ("name", "overrides", "named"),
    [
        ("grpo", [], []),  # as it ships: its header says so
        ("grpo", ["objective.clip_high=0.28"], ["objective.clip_low"]),
        ("grpo", ["optimisation.minibatches=2"], []),
        ("grpo", ["objective.bypass=true"], ["objective.clip_low"]),
        ("grpo", ["objective.bypass=true", "asynchrony.lag=1"], []),
        ("ngrpo", [], []),
        ("rloo", [], []),  # no ratio
        ("recap", [], []),  # replayed rows are of older weights
        ("tis", [], ["corrections.0"]),
        ("icepop", [], ["corrections.0"]),
        ("mis", [], ["corrections.0"]),
        ("geometric_rejection", [], ["corrections.0", "corrections.1"]),
        ("trust_region_masking", [], ["corrections.0"]),
        ("tis", ["asynchrony.lag=1"], []),
        ("tis", ["sampling.top_p=0.9"], []),
        ("tis", ["optimisation.autocast=true"], []),
        ("tis", ["sampler={kind: vllm}"], []),
        ("hapo", [], []),  # its sampler draws at temperatures of its own
        ("par", [], ["critic.clip"]),
        ("ppo", [], []),
    ],
)
def test_parts_that_cannot_act(name: str, overrides: list[str], named: list[str]) -> None:
    assert parts(name, *overrides) == named


@pytest.mark.parametrize(
    ("overrides", "acts"), [((), False), (("optimisation.epochs=3", "optimisation.lr=0.05"), True)]
)
def test_a_clip_that_is_named_clips_nothing(overrides: tuple[str, ...], acts: bool, tmp_path: Path) -> None:
    """The warning of the run against what the run measures."""
    settings = [*SMALL, "optimisation.minibatches=1", "optimisation.lr=0.01", "objective.clip_low=0.1", *overrides]
    recipe = load_recipe("tis", settings)
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    items = [PromptItem((Message("user", f"Name {n}."),), (MaxWords(n),)) for n in (1, 2, 3, 4)]
    source = recipe.source.open(items, seed=0, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [VerifierReward()], tmp_path)
    warned = " ".join(trainer.warnings)
    assert ("objective.clip_low" in warned) is not acts
    assert "corrections.0 (TokenTis): cannot act" in warned
    rows = trainer.train(3)
    assert (max(row.get("clip_fraction", 0.0) for row in rows) > 0) is acts
    assert all(row["tis_clipped_share"] == 0 and row["mismatch_kl"] < 1e-4 for row in rows)
