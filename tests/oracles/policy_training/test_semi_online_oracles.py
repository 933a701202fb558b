"""UI-S1's returns and advantages, Router-R1's reward: numbers by hand."""

import math

import pytest
import torch
from rollout_rows import rollouts

from assay.score import STEP, Score, ScorePart
from assay_policy_training.plugins.compositions.router import RouterReward, cost_score
from assay_policy_training.plugins.estimators.semi_online import SemiOnline, discounted_returns
from assay_policy_training.plugins.protocols import StepReport


def test_returns_are_discounted_and_break_off_where_an_action_was_not_the_policys_own() -> None:
    assert discounted_returns([0, 0, 1], 0.5) == [0.25, 0.5, 1]
    assert discounted_returns([1, 0, 1], 0.5, [True, False, True]) == [1, 0, 1]
    assert discounted_returns([1, 1, 1], 0.5, [True, True, True]) == [1.75, 1.5, 1]


def test_the_advantage_is_of_the_episode_and_of_the_step_within_the_group() -> None:
    def score(values: list[float]) -> dict[str, Score]:
        parts = tuple(ScorePart(f"{STEP}{n}", value=value) for n, value in enumerate(values, start=1))
        return {"step": Score(sum(values), "Replay", "", "", 0, False, parts=parts)}

    steps = [[1.0, 1.0], [0.0, 1.0], [0.0]]
    segment = torch.tensor([[0, 1], [0, 1], [0, 0]])
    batch = rollouts(
        [2, 2, 1],
        uid=["0"] * 3,
        segment=segment,
        scores=tuple(map(score, steps)),
        r_parts={"step": torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)},
        reward=torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64),
    )
    # Episodes 2, 1, 0: +1, 0, -1. First steps return 1.5, 0, 0, mean 0.5; second ones 1, 1: 0.
    adv, _ = SemiOnline(scaled=False)(batch)
    assert adv.tolist() == [[2.0, 1.0], [-0.5, 0.0], [-1.5, 0.0]]
    only_steps, _ = SemiOnline(scaled=False, episode=0.0, step=2.0)(batch)
    assert only_steps.tolist() == [[2.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]]


def test_the_routers_reward_weighs_the_outcome_and_the_cost_behind_the_form() -> None:
    seen = torch.tensor([0.0, 1.0], dtype=torch.float64)  # 5 % and 95 %: 0.05, 0.95
    assert cost_score(0.25, seen) == pytest.approx(1 - 0.45 / 0.9)
    assert (cost_score(4.0, seen), cost_score(0.0, seen)) == (0.0, 1.0)
    assert cost_score(3.0, torch.ones(4, dtype=torch.float64)) == 0.5
    parts = {
        "format": torch.tensor([0.0, 0.0, -1.0, 0.0], dtype=torch.float64),
        "outcome": torch.tensor([1.0, 1.0, 0.0, math.nan], dtype=torch.float64),
        "cost": torch.tensor([0.0, 1.0, 0.0, 1.0], dtype=torch.float64),
    }
    reward = RouterReward(alpha=0.25)(parts)
    assert reward[:3].tolist() == pytest.approx([1.0, 0.75, -1.0])
    assert reward[3].isnan()
    remembering = RouterReward(alpha=1.0)
    one = {name: values[:1] for name, values in parts.items()}
    remembering(parts)
    assert remembering(one).tolist() == [0.5]  # an evaluation is not remembered
    batch = rollouts([1] * 4, uid=["0"] * 4, r_parts=parts)
    remembering.observe(StepReport(1, {}, batch))
    other = RouterReward(alpha=1.0)
    other.load_state_dict(remembering.state_dict())
    assert other(one).tolist() == remembering(one).tolist() == [1.0]
