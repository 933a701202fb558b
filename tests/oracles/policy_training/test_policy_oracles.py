"""Every number of the reference oracles [KL], [PPO clip], [GRPO], [DrGRPO], [RLOO], [agg], and the gradient facts."""

from __future__ import annotations

import pytest
import torch

from assay.errors import BadInputError
from assay_policy_training.core.aggregation import aggregate, count
from assay_policy_training.core.batch import dr_grpo, group_moments, rloo
from assay_policy_training.core.ratios import kl_estimate
from assay_policy_training.plugins.estimators.group_relative import grpo
from assay_policy_training.plugins.objectives.ratio_clip import clipped_loss

TOLERANCE = 1e-5
REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64)
GROUP = torch.zeros(4, dtype=torch.long)
SIGNS = [1.0, -1.0, -1.0, 1.0]


@pytest.mark.parametrize(
    ("advantage", "size"),
    [
        (grpo(REWARDS, GROUP, ddof=1), 0.866024),
        (grpo(REWARDS, GROUP, ddof=0), 0.999998),
        (dr_grpo(REWARDS, GROUP), 0.5),
        (rloo(REWARDS, GROUP), 0.666667),
    ],
    ids=["grpo ddof 1", "grpo ddof 0", "dr_grpo", "rloo"],
)
def test_group_advantages(advantage: torch.Tensor, size: float) -> None:
    assert advantage.tolist() == pytest.approx([sign * size for sign in SIGNS], abs=TOLERANCE)


@pytest.mark.parametrize("estimator", [grpo, dr_grpo, rloo])
def test_single_row_and_nearly_equal_groups_get_no_advantage(estimator: type) -> None:
    reward = torch.tensor([3.0, 1.0, 1.0 + 1e-7, 1.0], dtype=torch.float64)
    group = torch.tensor([0, 1, 1, 1])
    assert estimator(reward, group).tolist() == pytest.approx([0, 0, 0, 0], abs=1e-6)


@pytest.mark.parametrize("estimator", [grpo, dr_grpo, rloo])
def test_missing_reward_changes_nothing_for_the_others(estimator: type) -> None:
    whole = estimator(REWARDS, GROUP)
    reward = torch.tensor([1.0, 0.0, torch.nan, 0.0, 1.0], dtype=torch.float64)
    found = estimator(reward, torch.zeros(5, dtype=torch.long))
    assert found[[0, 1, 3, 4]].tolist() == pytest.approx(whole.tolist())
    assert found[2] == 0


def test_group_of_missing_rewards_only() -> None:
    count_, mean, deviation, spread = group_moments(torch.tensor([torch.nan, torch.nan]), torch.zeros(2).long(), ddof=1)
    assert count_.tolist() == [0, 0]
    assert not torch.stack([mean, deviation, spread]).any()


def test_kl_values() -> None:
    logp, ref = torch.tensor(0.5), torch.tensor(0.0)
    assert [
        float(kl_estimate(kind, logp, ref)) for kind in ("k1", "k2", "k3", "abs", "k3_straight_through")
    ] == pytest.approx([0.5, 0.125, 0.106531, 0.5, 0.106531], abs=TOLERANCE)


PI = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)


@pytest.mark.parametrize(("kind", "expected"), [("k1", 0.025267), ("k2", 0.024862), ("k3", 0.025267)])
def test_kl_expectations(kind: str, expected: float) -> None:
    assert float((PI * kl_estimate(kind, PI.log(), Q.log())).sum()) == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k1", [0.0, 0.0, 0.0]),
        ("k2", [0.098938, -0.093885, -0.005053]),
        ("k3", [0.1, -0.1, 0.0]),
        ("k3_straight_through", [0.098938, -0.093885, -0.005053]),
    ],
)
def test_kl_loss_gradients(kind: str, expected: list[float]) -> None:
    """Expected gradient of the estimator as a loss on on-policy tokens, with respect to the logits."""
    logits = PI.log().clone().requires_grad_()
    (gradient,) = torch.autograd.grad((PI * kl_estimate(kind, logits.log_softmax(0), Q.log())).sum(), logits)
    assert gradient.tolist() == pytest.approx(expected, abs=TOLERANCE)


def test_true_kl_gradient_is_that_of_k2() -> None:
    logits = PI.log().clone().requires_grad_()
    logp = logits.log_softmax(0)
    (gradient,) = torch.autograd.grad((logp.exp() * (logp - Q.log())).sum(), logits)
    assert gradient.tolist() == pytest.approx([0.098938, -0.093885, -0.005053], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [(1.5, 1, -1.2), (1.5, -1, 1.5), (0.5, 1, -0.5), (0.5, -1, 0.8), (4, -1, 3.0), (1.1, 1, -1.1)],
)
def test_clipped_objective(ratio: float, advantage: float, loss: float) -> None:
    found, _, _ = clipped_loss(
        torch.tensor(ratio).log(), torch.tensor(float(advantage)), clip_low=0.2, clip_high=0.2, dual_clip=3.0
    )
    assert float(found) == pytest.approx(loss, abs=TOLERANCE)


@pytest.mark.parametrize(("ratio", "loss", "clipped"), [(1.25, -1.25, False), (1.3, -1.28, True)])
def test_clip_higher(ratio: float, loss: float, clipped: bool) -> None:
    found, hit, _ = clipped_loss(
        torch.tensor(ratio).log(), torch.tensor(1.0), clip_low=0.2, clip_high=0.28, dual_clip=10.0
    )
    assert float(found) == pytest.approx(loss, abs=TOLERANCE)
    assert bool(hit) is clipped


def test_dual_clip_is_reported_and_can_be_off() -> None:
    log_ratio, advantage = torch.tensor(4.0).log(), torch.tensor(-1.0)
    _, _, dual = clipped_loss(log_ratio, advantage, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    loss, _, off = clipped_loss(log_ratio, advantage, clip_low=0.2, clip_high=0.2, dual_clip=None)
    assert bool(dual)
    assert not bool(off)
    assert float(loss) == pytest.approx(4.0)


LOSS = torch.tensor([[1.0, 1, 9, 9], [2, 2, 2, 2], [9, 9, 9, 9]])
MASK = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 1.666667),
        ("seq-mean-token-mean", 1.5),
        ("seq-mean-token-sum", 5.0),
        ("seq-mean-token-sum-norm", 1.25),
    ],
)
def test_aggregation(mode: str, expected: float) -> None:
    """The last row has no loss token: it counts in no denominator."""
    assert float(aggregate(LOSS, MASK, count(MASK), mode, max_length=4)) == pytest.approx(expected, abs=TOLERANCE)


def test_normalised_sum_refuses_to_guess_its_length() -> None:
    with pytest.raises(BadInputError, match="maximal length"):
        aggregate(LOSS, MASK, count(MASK), "seq-mean-token-sum-norm")
