"""Schedules: reference oracle [LR sched], the detector of a surge in length and its memory, plain decays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from rollout_rows import rollouts

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.config import Optimisation
from assay_policy_training.core.policy import Policy
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.prompts.source import ShuffledPrompts
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.schedules.decay import Cosine, LengthLr, Linear
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.rollouts.rewards import VerifierReward
from assay_policy_training.training.loop import PolicyLoop
from assay_serving.verifiers import NoCommas


def report(step: int, *lengths: int) -> StepReport:
    return StepReport(step, {}, rollouts(lengths))


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (5, 5e-7),
        (50, 1e-6),
        (110, 1e-6),
        (250, 1e-6),
        (309, 5e-7),
        (507, 2.5e-7),
        (705, 1.25e-7),
        (2000, 1e-7),
    ],
)
def test_length_lr_oracle(step: int, rate: float) -> None:
    """Surge at step 110, warm-up 10, lr 1e-6."""
    base = Optimisation(lr=1e-6, warmup_steps=10).learning_rate(step)
    assert LengthLr(at=110).value("lr", base, step) == pytest.approx(rate)


def test_length_lr_changes_nothing_else() -> None:
    assert LengthLr(at=1).value("temperature", 1.0, 900) == 1.0
    assert LengthLr().value("lr", 1e-6, 900) == 1e-6


def test_surge_is_the_first_step_beyond_the_baseline() -> None:
    schedule = LengthLr(baseline_steps=3, surge=3.0)
    for step, lengths in enumerate([(10, 10), (8, 12), (9, 11), (30, 30), (29, 31)], 1):
        schedule.observe(report(step, *lengths))
        assert schedule.surge_step is None, "not above three times the baseline of 10"
    schedule.observe(report(6, 30, 31))
    assert schedule.surge_step == 6
    schedule.observe(report(7, 500, 500))
    assert schedule.surge_step == 6
    # 1.8 x 6 = 10.8 steps a period
    assert [schedule.value("lr", 1.0, step) for step in (5, 6, 16, 17, 28)] == [1.0, 1.0, 1.0, 0.5, 0.25]


def test_surge_never_fires_in_the_baseline() -> None:
    schedule = LengthLr(baseline_steps=4)
    for step, length in enumerate([1, 100, 1000, 10_000], 1):
        schedule.observe(report(step, length))
    assert schedule.surge_step is None


def test_median_is_blind_to_a_few_long_rows() -> None:
    mean, median = LengthLr(baseline_steps=1), LengthLr(baseline_steps=1, statistic="median")
    for schedule in (mean, median):
        schedule.observe(report(1, 10, 10, 10))
        schedule.observe(report(2, 10, 10, 100))
    assert (mean.surge_step, median.surge_step) == (2, None)


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_resumed_schedule_is_the_uninterrupted_one(stop: int) -> None:
    lengths = [10, 12, 11, 50, 10, 60]
    whole = LengthLr(baseline_steps=3)
    for step, length in enumerate(lengths, 1):
        whole.observe(report(step, length))
    first = LengthLr(baseline_steps=3)
    for step, length in enumerate(lengths[:stop], 1):
        first.observe(report(step, length))
    second = LengthLr(baseline_steps=3)
    second.load_state_dict(first.state_dict())
    for step, length in enumerate(lengths[stop:], stop + 1):
        second.observe(report(step, length))
    assert second.state_dict() == whole.state_dict()
    assert second.surge_step == 4


def test_rate_falls_in_a_run_whose_responses_surge(tmp_path: Path) -> None:
    """Through the recipe and the trainer: what is logged and used is the scheduled rate."""
    recipe = load_recipe(
        "length_lr",
        [
            "schedules=[{kind: length_lr, baseline_steps: 1, surge: 1.5, stretch: 0.5}, "
            "{kind: linear, setting: max_new_tokens, end: 2, final: 12.0}]",
            "optimisation={lr: 0.001}",
            "sampling={prompts_per_step: 1, group_size: 2, max_new_tokens: 2}",
            "checkpoint_every=0",
        ],
    )
    policy = Policy("tiny", device=torch.device("cpu"), max_prompt_tokens=64, with_reference=True)
    prompts = ShuffledPrompts([PromptItem((Message("user", "hi"),), (NoCommas(),))], seed=0)
    trainer = PolicyLoop(recipe, policy, prompts, [VerifierReward()], tmp_path)
    rows = trainer.train(5)
    assert rows[1]["length_mean"] > 1.5 * rows[0]["length_mean"]
    assert [row["lr"] for row in rows] == pytest.approx([1e-3, 1e-3, 5e-4, 2.5e-4, 1.25e-4])


def test_linear_and_cosine() -> None:
    linear, cosine = Linear(end=11, final=0.1), Cosine(end=11, final=0.1)
    assert [linear.value("lr", 2.0, step) for step in (1, 6, 11, 500)] == pytest.approx([2.0, 1.1, 0.2, 0.2])
    assert [cosine.value("lr", 2.0, step) for step in (1, 6, 11, 500)] == pytest.approx([2.0, 1.1, 0.2, 0.2])
    assert cosine.factor(3) > linear.factor(3)
    assert cosine.factor(9) < linear.factor(9)
    late = Linear(end=10, start=5, setting="temperature", final=0.5)
    assert [late.value("temperature", 1.0, step) for step in (1, 5, 10)] == pytest.approx([1.0, 1.0, 0.5])
    assert late.value("lr", 1.0, 10) == 1.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Linear(end=1),
        lambda: Cosine(end=5, start=0),
        lambda: Linear(end=5, setting="clip"),  # type: ignore[arg-type]
        lambda: Linear(end=5, setting="temperature"),
        lambda: LengthLr(baseline_steps=0),
        lambda: LengthLr(surge=1.0),
        lambda: LengthLr(statistic="mode"),  # type: ignore[arg-type]
        lambda: LengthLr(at=0),
        lambda: LengthLr(least=2.0),
        lambda: load_recipe("length_lr", ["schedules.0.baseline_steps=5"]),
        lambda: load_recipe("length_lr", ["schedules=[{kind: length_lr}, {kind: cosine, end: 9}]"]),
        lambda: load_recipe("grpo", ["schedules=[{kind: linear, end: 5}, {kind: cosine, end: 9}]"]),
    ],
)
def test_settings_that_do_not_fit(make: Any) -> None:
    with pytest.raises(BadInputError):
        make()
