"""Rules that end a policy run: bounds kept for several steps, progress that stops, memory that survives a restart."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.watch.stop_rules import NoProgress, OutOfBounds
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import AllLowercase


def test_bound_must_be_broken_in_a_row() -> None:
    rule = OutOfBounds("kl_k3", above=0.5, patience=2)
    rows = [0.6, 0.4, 0.7, None, 0.8]
    found = [rule.reason({} if value is None else {"kl_k3": value}) for value in rows]
    assert found[:4] == [None] * 4
    assert found[4] is not None
    assert "kl_k3 was above 0.5 for 2 steps" in found[4]
    below = OutOfBounds("entropy", below=0.1, patience=1)
    assert below.reason({"entropy": 0.05})
    assert below.reason({"entropy": 0.2}) is None


def test_not_a_number_is_out_of_bounds() -> None:
    rule = OutOfBounds("loss", above=10.0, patience=2)
    found = [rule.reason({"loss": value}) for value in (0.1, math.nan, math.nan)]
    assert found[:2] == [None, None]
    assert found[2] is not None


def test_no_progress_counts_from_the_best_mean() -> None:
    rule = NoProgress("reward_mean", patience=3, window=2)
    found = [rule.reason({"reward_mean": value}) for value in (0.0, 1.0, 1.0, 1.0, 1.0, 1.0)]
    assert found[:5] == [None] * 5  # the mean of two still rises at the third
    assert found[5] is not None
    falling = NoProgress("loss", patience=1, window=1, falling=True)
    assert falling.reason({"loss": 2.0}) is None
    assert falling.reason({"loss": 1.0}) is None
    assert "no better than 1" in str(falling.reason({"loss": 1.5}))


@pytest.mark.parametrize("rule", [OutOfBounds("x", above=1.0, patience=3), NoProgress("x", patience=2, window=2)])
def test_memory_continues_after_a_restart(rule: OutOfBounds | NoProgress) -> None:
    values = [0.5, 2.0, 2.0, 2.0, 1.0, 1.0, 0.0]
    whole = [rule.reason({"x": value}) for value in values]
    first, second = replace(rule), replace(rule)
    found = [first.reason({"x": value}) for value in values[:3]]
    second.load_state_dict(first.state_dict())
    assert found + [second.reason({"x": value}) for value in values[3:]] == whole
    assert any(whole)


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(BadInputError, match="either above or below"):
        OutOfBounds("x")
    with pytest.raises(BadInputError, match="patience"):
        NoProgress(patience=0)


def test_a_run_stops_and_says_why(tmp_path: Path) -> None:
    """A rule of the recipe ends a real run after the steps it wants."""
    recipe = load_recipe("grpo", ["stop=[{kind: out_of_bounds, metric: entropy, above: 0.0, patience: 2}]", "steps=5"])
    sampling = replace(recipe.sampling, prompts_per_step=1, group_size=2, max_new_tokens=4)
    recipe = replace(
        recipe, sampling=sampling, checkpoint_every=0, report_kl=False, kl=replace(recipe.kl, coefficient=0.0)
    )
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64)
    source = recipe.source.open([PromptItem((Message("user", "hi"),), (AllLowercase(),))], seed=0, policy=policy)
    trainer = PolicyLoop(recipe, policy, source, [VerifierReward()], tmp_path)
    rows = trainer.train()
    assert len(rows) == 2
    assert trainer.stopped is not None
    assert "entropy was above 0 for 2 steps" in trainer.stopped
    assert all(math.isfinite(row["entropy"]) for row in rows)
