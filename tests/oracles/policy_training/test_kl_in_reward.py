"""KL in the reward: reference oracle [adaptive KL], and what the penalty does to returns."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from token_rows import batch_of

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.estimators.gae import ReturnsToGo
from assay_policy_training.plugins.protocols import StepReport
from assay_policy_training.plugins.shaping.dense import KlInReward, adapted


def penalised(logp_old: list[list[float]], reward: list[float], lengths: list[int]) -> RolloutBatch:
    """logp_ref is 0, so that logp_old is d."""
    old = torch.tensor(logp_old)
    mask = torch.arange(old.shape[1]) < torch.tensor(lengths)[:, None]
    return batch_of(mask, reward, logp_old=old, logp_ref=torch.zeros(old.shape))


def test_adaptive_coefficient() -> None:
    assert adapted(0.2, 9.0, target=6.0, horizon=10_000, rows=256) == pytest.approx(0.201024, abs=1e-9)
    assert adapted(0.2, 6.3, target=6.0, horizon=10_000, rows=256) == pytest.approx(0.2 * (1 + 0.05 * 0.0256))
    assert adapted(0.2, 0.0, target=6.0, horizon=10_000, rows=256) == pytest.approx(0.2 * (1 - 0.2 * 0.0256))


@pytest.mark.parametrize(("estimator", "kl"), [("k1", 0.5), ("k2", 0.125), ("k3", 0.106531), ("abs", 0.5)])
def test_penalty_of_each_token(estimator: str, kl: float) -> None:
    batch = penalised([[0.5, 0.5, 0.5]], [1.0], [2])
    shaped = KlInReward(coefficient=0.1, estimator=estimator).shape(batch)
    assert shaped.token_reward[0].tolist() == pytest.approx([-0.1 * kl, 1 - 0.1 * kl, 0.0], abs=1e-6)
    assert float(shaped.outcome[0]) == pytest.approx(1 - 0.2 * kl, abs=1e-6)


def test_returns_of_the_reinforce_pp_oracle() -> None:
    """KL [.01,.02,.03] and [.03,0] with outcomes 1 and 0 -> returns [.94,.95,.97], [-.03,0]."""
    batch = penalised([[0.1, 0.2, 0.3], [0.3, 0.0, 5.0]], [1.0, 0.0], [3, 2])
    returns, _ = ReturnsToGo()(KlInReward(coefficient=0.1).shape(batch))
    assert returns.flatten().tolist() == pytest.approx([0.94, 0.95, 0.97, -0.03, 0.0, 0.0], abs=1e-6)


def test_two_penalties_add_up_and_a_missing_reward_stays_missing() -> None:
    batch = penalised([[0.5, 0.5]], [torch.nan], [2])
    once = KlInReward(coefficient=0.1).shape(batch)
    twice = KlInReward(coefficient=0.1).shape(once)
    assert once.dense is not None
    assert twice.dense is not None
    torch.testing.assert_close(twice.dense, 2 * once.dense)
    assert bool(twice.outcome.isnan().all())
    assert not twice.token_reward.any()


def test_controller_remembers_over_a_restart() -> None:
    batch = penalised([[1.0, 1.0, 1.0], [9.0, 6.0, 9.0]], [1.0, 0.0], [3, 2])  # 3 and 15 nats: a mean of 9
    plugin = KlInReward(coefficient=0.2, target=6.0, horizon=100.0)
    plugin.observe(StepReport(1, {}, batch, batch))
    assert plugin.current == pytest.approx(0.2 * (1 + 0.2 * 2 / 100))
    again = KlInReward(coefficient=0.2, target=6.0, horizon=100.0)
    again.load_state_dict(json.loads(json.dumps(plugin.state_dict())))
    for one in (plugin, again):
        one.observe(StepReport(2, {}, batch, batch))
    assert again.current == plugin.current > 0.2
    found, expected = again.shape(batch).dense, plugin.shape(batch).dense
    assert found is not None
    assert expected is not None
    assert torch.equal(found, expected)


def test_fixed_coefficient_stays() -> None:
    plugin = KlInReward(coefficient=0.2)
    batch = penalised([[9.0]], [1.0], [1])
    plugin.observe(StepReport(1, {}, batch, batch))
    assert plugin.current == 0.2


@pytest.mark.parametrize(
    "settings", [{"coefficient": -1.0}, {"estimator": "k3_straight_through"}, {"target": 0.0}, {"horizon": 0.0}]
)
def test_settings_out_of_range(settings: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match=next(iter(settings))):
        KlInReward(**settings)
