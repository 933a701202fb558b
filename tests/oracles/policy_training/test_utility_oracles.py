"""Reference numbers of whole-response weights and utilities: trajectory weighting, variance penalty, AWM."""

from __future__ import annotations

import pytest
import torch
from rollout_rows import context_of_rows, rollouts
from torch import Tensor

from assay_policy_training.core.aggregation import LossAggregation, count
from assay_policy_training.plugins.objectives.ratio_clip import Reinforce
from assay_policy_training.plugins.replay.trajectories import TrajectoryWeights, trajectory_weights
from assay_policy_training.plugins.shaping.risk import VariancePenalty

NAN = float("nan")


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_trajectory_weights() -> None:
    weights = trajectory_weights(numbers(0, 0.5, 1), torch.tensor([1, 2, 1]), 0.5)
    assert weights.tolist() == pytest.approx([0.289318, 0.786448, 2.137787], abs=2e-6)
    moved = trajectory_weights(10 * numbers(0, 0.5, 1) - 3, torch.tensor([1, 2, 1]), 0.5)
    assert moved.tolist() == pytest.approx(weights.tolist()), "the scale of the reward does not matter"
    assert trajectory_weights(numbers(2, NAN, 2), torch.tensor([1, 9, 3]), 0.1).tolist() == [1, 0, 1]
    assert trajectory_weights(numbers(NAN), torch.tensor([3]), 0.1).tolist() == [0]


def test_trajectory_weights_by_what_a_prompt_makes_easy() -> None:
    """Two prompts whose responses differ by as much, at different levels: weights are those of one prompt."""
    batch = rollouts([2] * 4, uid=list("aabb"), reward=numbers(0, 1, 5, 6), adv=torch.ones(4, 2))
    by_prompt = TrajectoryWeights(alpha=0.5).mix(batch).estimated_adv[:, 0]
    assert by_prompt.tolist() == pytest.approx([0.238406, 1.761594] * 2, abs=1e-6)  # 2 sigmoid(-2), 2 sigmoid(2)
    flat = TrajectoryWeights(alpha=0.5, baseline="none").mix(batch).estimated_adv[:, 0]
    assert flat[2] > 3 * flat[1], (
        "without a baseline the easy prompt's bad response counts more than the other's good one"
    )


def test_variance_penalty() -> None:
    shaped = VariancePenalty(risk=0.5).shape(rollouts([1] * 5, uid=list("aaabc"), reward=numbers(1, 0, 0, 7, NAN)))
    assert shaped.scored_reward[:4].tolist() == pytest.approx([0.5, -0.125, -0.125, 7])
    assert shaped.scored_reward[4].isnan()


def test_variance_penalty_has_the_gradient_of_the_utility() -> None:
    """Exact over all pairs of draws from a policy of three responses: E[R' grad log pi] = grad (E[R] - risk Var[R])."""
    theta, reward, risk = numbers(0.2, -0.4, 0.1).requires_grad_(), numbers(1, 0, 3), 0.7
    p = theta.softmax(0)
    utility = (p * reward).sum() - risk * ((p * reward**2).sum() - (p * reward).sum() ** 2)
    (exact,) = torch.autograd.grad(utility, theta)
    surrogate = numbers(0).sum()
    logp = theta.log_softmax(0)
    for first in range(3):
        for second in range(3):
            pair = rollouts([1, 1], uid=["a", "a"], reward=reward[[first, second]])
            shaped = VariancePenalty(risk=risk).shape(pair).scored_reward
            surrogate = surrogate + (p[first] * p[second]).detach() * shaped[0] * logp[first]
    (estimated,) = torch.autograd.grad(surrogate, theta)
    assert estimated.tolist() == pytest.approx(exact.tolist(), abs=1e-9)


def test_awm_is_pretraining_weighted_by_advantage() -> None:
    """A mean over all tokens of -log pi, as in pretraining, each times its row's advantage."""
    adv = torch.tensor([[0.5, 0.5], [-1.0, 0.0]])
    batch = rollouts([2, 1], adv=adv, logp_old=torch.zeros(2, 2))
    logp = torch.tensor([[-1.0, -3.0], [-2.0, -9.0]])
    loss, _ = Reinforce().loss(logp, context_of_rows(batch))
    mean = LossAggregation("token-mean")(loss, batch.loss_mask, count(batch.loss_mask))
    assert float(mean) == pytest.approx((0.5 * 1 + 0.5 * 3 - 1 * 2) / 3)
