"""Which tokens count, and how much: reference oracles [80/20], [STEER], [Clip-Cov], [HAPO pivot], [3 sigma]; statistics
of the whole step, whatever the order of rows, padding and micro-batches."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_rows import context_of_rows, rollouts
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.estimators.group_relative import TokenLevel, grpo, token_level
from assay_policy_training.plugins.modulators.whitening import ThreeSigma, three_sigma
from assay_policy_training.plugins.objectives.hapo import Hapo
from assay_policy_training.plugins.objectives.kl_cov import KlCov
from assay_policy_training.plugins.token_weights.covariance import ClipCov, covariance, random_tokens, top_tokens
from assay_policy_training.plugins.token_weights.entropy import (
    EntropyScale,
    HighEntropy,
    Steer,
    entropy_change,
    exponential_map,
    high_entropy,
    linear_map,
    quantile,
)

H = [0.1, 0.9, 0.05, 0.3, 2, 0.2, 0.01, 0.4, 0.6, 0.15]


def step() -> RolloutBatch:
    """Five rows in two groups, with random numbers outside the mask too."""
    generator = torch.Generator().manual_seed(3)
    lengths, width = [6, 2, 5, 1, 4], 6
    logp = -2 * torch.rand(5, width, generator=generator)
    return rollouts(
        lengths,
        uid=("a", "b", "a", "b", "a"),
        adv=torch.randn(5, width, generator=generator),
        logp_old=logp,
        logp_mu=logp,
        entropy=2 * torch.rand(5, width, generator=generator),
        reward=torch.tensor([1.0, 0, 0, 1, 0.5], dtype=torch.float64),
    )


def padded(batch: RolloutBatch, more: int = 3) -> RolloutBatch:
    names = ("tokens", "mask", "loss_mask", "adv", "logp_old", "logp_mu", "entropy", "token_version")
    wide = {}
    for name in names:
        value: Tensor = getattr(batch, name)
        filler = torch.zeros(len(batch), more, dtype=value.dtype)
        wide[name] = torch.cat([value, filler if value.dtype == torch.bool else filler + 7], 1)
    return batch.with_(**wide)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_quantile_is_torchs(values: list[float], share: float) -> None:
    given_values = torch.tensor(values, dtype=torch.float64)
    assert quantile(given_values, share) == pytest.approx(float(given_values.quantile(share)), abs=1e-6)


def test_high_entropy_oracle() -> None:
    entropy = torch.tensor([H])
    assert quantile(entropy[0], 0.8) == pytest.approx(0.66)
    kept = high_entropy(entropy, torch.ones(1, 10, dtype=torch.bool), 0.2)
    assert kept[0].nonzero().flatten().tolist() == [1, 4]


def test_high_entropy_threshold_is_of_the_whole_step_without_padding() -> None:
    entropy = torch.tensor([[*H[:5]], [*H[5:]]])
    batch = rollouts([5, 5], width=9, entropy=torch.cat([entropy, torch.full((2, 4), 50.0)], 1))
    kept = HighEntropy(0.2).prepare(batch)
    assert kept.loss_mask.nonzero().tolist() == [[0, 1], [0, 4]]
    assert torch.equal(kept.mask, batch.mask)
    rejected = batch.with_(loss_mask=batch.loss_mask & torch.tensor([[False], [True]]))
    assert not HighEntropy(0.2).prepare(rejected).loss_mask.any()


def test_steer_oracle() -> None:
    logp = torch.tensor([0.9, 0.3]).log()
    change = entropy_change(torch.ones(2), logp, logp, torch.tensor([0.4, 1.2]))
    assert change.tolist() == pytest.approx([0.029464, 0.002781], abs=1e-5)
    assert exponential_map(change, float(change.max()), 0.8).tolist() == pytest.approx([0.8, 0.979159], abs=1e-5)
    found = linear_map(change, float(change.min()), float(change.max()), 0.8, 1.2)
    assert found.tolist() == pytest.approx([0.8, 1.2], abs=1e-5)
    assert linear_map(torch.ones(2), 1.0, 1.0, 0.8, 1.2).tolist() == [1.0, 1.0]


def test_steer_small_changes_are_not_blown_up() -> None:
    weight = exponential_map(torch.tensor([0.001]), 0.001, 0.8)
    assert float(weight) == pytest.approx(math.exp(math.log(0.8) * 0.001 / 0.02), abs=1e-6)


@pytest.mark.parametrize("plugin", [Steer(), Steer(map="linear")])
def test_steer_does_not_depend_on_micro_batches(plugin: Steer) -> None:
    """Released code takes the extremes of each micro-batch: then the row alone would get other weights."""
    batch = plugin.prepare(step())
    assert batch.logp_old is not None
    logp = batch.logp_old + 0.05
    whole = plugin.weight(logp, context_of_rows(batch))
    parts = [plugin.weight(logp[[row]], context_of_rows(batch.select([row]))) for row in range(5)]
    assert torch.equal(torch.cat(parts), whole)
    alone = plugin.prepare(step().select([1]))
    local = plugin.weight(logp[[1]], context_of_rows(alone))
    assert not torch.allclose(local[alone.mask], whole[[1]][alone.mask])


def test_covariance_oracle() -> None:
    advantage, logp = torch.tensor([[1.0, 1, -1, -1]]), torch.tensor([[-0.1, -2, -0.2, -1]])
    mask = torch.ones(1, 4, dtype=torch.bool)
    found = covariance(advantage, logp, mask)
    assert found[0].tolist() == pytest.approx([0.725, -1.175, -0.625, 0.175], abs=1e-6)
    assert top_tokens(found, mask, 0.5)[0].tolist() == [True, False, False, True]
    assert top_tokens(found, mask, 1e-9).sum() == 1


def test_covariance_marks_rows_and_places_of_a_padded_batch() -> None:
    """Flat indices of the valid tokens are not indices of [B,T]: with padding they would mark other tokens."""
    advantage = torch.tensor([[-1.0, 9, 9], [1.0, 1.0, 9], [-1.0, -1.0, -1.0]])
    logp = torch.tensor([[-1.0, 9, 9], [-1.0, -0.1, 9], [-2.0, -2.0, -2.0]])
    batch = rollouts([1, 2, 3], adv=advantage, logp_old=logp)
    assert KlCov(share=0.2).prepare(batch).extras["kl_cov"].nonzero().tolist() == [[1, 1]]
    found = ClipCov(share=0.2, low=1.0, high=5.0).prepare(batch).extras["clip_cov"].nonzero().tolist()
    values = covariance(advantage, logp, batch.mask)
    assert found == [[1, 1]]
    assert float(values[1, 1]) == pytest.approx(float(values[batch.mask].max()))


def test_clip_cov_takes_the_loss_out_and_keeps_the_denominator() -> None:
    advantage, logp = torch.tensor([[2.0, 2, -2, -2]]), torch.tensor([[-0.1, -2, -0.2, -3]])
    batch = rollouts([4], adv=advantage, logp_old=logp)
    plugin = ClipCov(share=1.0, low=1.0, high=5.0)
    prepared = plugin.prepare(batch)
    inside = covariance(advantage, logp, batch.mask)
    assert torch.equal(plugin.weight(logp, context_of_rows(prepared)) == 0, (inside > 1) & (inside < 5))
    assert torch.equal(prepared.loss_mask, batch.loss_mask)


def test_clip_cov_draws_by_its_seed() -> None:
    batch = rollouts([40], adv=torch.ones(1, 40), logp_old=torch.zeros(1, 40))
    drawn = [random_tokens(batch.mask, 10, batch, seed) for seed in (0, 0, 1)]
    assert drawn[0].sum() == 10
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


SELECTORS = [
    HighEntropy(0.3),
    Steer(),
    Steer(map="linear"),
    ClipCov(share=0.2, low=0.0, high=5.0),
    KlCov(share=0.2),
    Hapo(),
]


def outcome(plugin: Any, batch: RolloutBatch) -> Tensor:
    """[B,T]: what the plug-in makes of each token at theta = old, 0 outside the mask."""
    prepared = plugin.prepare(batch)
    logp = prepared.logp_old
    if hasattr(plugin, "loss"):
        found = plugin.loss(logp - 0.3, context_of_rows(prepared))[0]
    else:
        found = plugin.weight(logp, context_of_rows(prepared))
        found = torch.ones_like(logp) if found is None else found
    return torch.where(prepared.loss_mask, found, 0.0)


@pytest.mark.parametrize("plugin", SELECTORS, ids=repr)
def test_order_of_rows_and_padding_change_nothing(plugin: Any) -> None:
    batch, order = step(), [3, 0, 4, 2, 1]
    found = outcome(plugin, batch)
    torch.testing.assert_close(outcome(plugin, batch.select(order)), found[order])
    torch.testing.assert_close(outcome(plugin, padded(batch))[:, :6], found)
    assert float(found[batch.mask].std()) > 0, "the numbers are such that the plug-in does something"


@pytest.mark.parametrize("plugin", SELECTORS, ids=repr)
def test_a_batch_without_tokens(plugin: Any) -> None:
    batch = rollouts([0, 0], width=2, adv=torch.zeros(2, 2), logp_old=torch.zeros(2, 2), entropy=torch.zeros(2, 2))
    assert not outcome(plugin, batch).any()


HAPO_H = [-1.0, -0.650515, -0.349485, 0.0, 1.0]


def test_hapo_scale_keeps_the_sign() -> None:
    """Divided by the negative smallest h, as in the released code, every low-entropy token would come out positive."""
    entropy = torch.tensor([[0.01, 0.05, 0.2, 1.0, 2.0]])
    scale = EntropyScale.of(entropy, torch.ones(1, 5, dtype=torch.bool))
    assert scale is not None
    assert scale.pivot == pytest.approx(0.0)
    assert scale.normalised(entropy)[0].tolist() == pytest.approx(HAPO_H, abs=1e-5)
    assert scale.lowest < 0 < scale.highest
    outside = scale.normalised(torch.tensor([0.0, 1e-9, 50.0]))
    assert outside.tolist() == [-1.0, -1.0, 1.0]


def test_hapo_scale_of_equal_entropies() -> None:
    scale = EntropyScale.of(torch.full((1, 3), 0.5), torch.ones(1, 3, dtype=torch.bool))
    assert scale is not None
    assert not scale.normalised(torch.tensor([0.1, 0.5, 3.0])).any()
    assert EntropyScale.of(torch.ones(1, 2), torch.zeros(1, 2, dtype=torch.bool)) is None


def test_token_level_moments_count_tokens() -> None:
    """Rewards 1 and 0 with 3 and 1 tokens: mean .75, deviation sqrt(.1875)."""
    reward, group = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.zeros(2, dtype=torch.long)
    found = token_level(reward, torch.tensor([3, 1]), group, eps=0.0)
    spread = math.sqrt(0.1875)
    assert found.tolist() == pytest.approx([0.25 / spread, -0.75 / spread])
    equal = token_level(reward, torch.tensor([2, 2]), group, eps=0.0)
    assert equal.tolist() == pytest.approx(grpo(reward, group, ddof=0, eps=0.0).tolist())


def test_token_level_falls_back_on_outliers() -> None:
    """A short failure among long successes is 10 deviations out by tokens: its group gets GRPO's advantages."""
    reward = torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    lengths, group = torch.tensor([1, 50, 50, 50, 10]), torch.tensor([0, 0, 0, 1, 1])
    found = token_level(reward, lengths, group)
    expected = grpo(reward, group, ddof=1)
    assert found[:3].tolist() == pytest.approx(expected[:3].tolist())
    assert found[3:].tolist() != pytest.approx(expected[3:].tolist())


def test_token_level_edges() -> None:
    reward = torch.tensor([1.0, torch.nan, 0.0, 3.0, 2.0, 2.0], dtype=torch.float64)
    group = torch.tensor([0, 0, 0, 1, 2, 2])
    lengths = torch.tensor([2, 9, 2, 4, 1, 5])
    found = token_level(reward, lengths, group)
    assert found[[1, 3, 4, 5]].tolist() == [0, 0, 0, 0]
    assert found[[0, 2]].tolist() == pytest.approx([1, -1], abs=1e-5)
    order = torch.tensor([4, 2, 1, 5, 0, 3])
    torch.testing.assert_close(token_level(reward[order], lengths[order], group[order]), found[order])
    adv, _ = TokenLevel()(step())
    assert adv.shape == (5, 6)
    assert not adv[~step().mask].any()


def test_three_sigma_oracle() -> None:
    """Twenty zeros and one 50: z 4.472136, so 0; and not by the released rule of mean +- 3."""
    values, mask = torch.tensor([[*[0.0] * 20, 50.0]]), torch.ones(1, 21, dtype=torch.bool)
    z = (values - values.mean()) / values.std(correction=0)
    assert float(z.max()) == pytest.approx(4.472136, abs=1e-5)
    found = three_sigma(values, mask)
    assert float(found[0, 20]) == 0.0
    assert float(found[0, 0]) == pytest.approx(float(z[0, 0]), abs=1e-5)
    wide = torch.tensor([[10.0, -10.0, 10.0, -10.0]])
    kept = three_sigma(wide, torch.ones(1, 4, dtype=torch.bool))
    assert kept.tolist() == [[1, -1, 1, -1]], "10 from the mean, but one deviation: the rule mean +- 3 would drop all"


def test_three_sigma_over_the_valid_tokens_of_the_step() -> None:
    batch = step()
    found = ThreeSigma(bound=10.0).modulate(batch)
    assert not found[~batch.mask].any()
    assert float(found[batch.mask].mean()) == pytest.approx(0, abs=1e-6)
    assert float(found[batch.mask].std(correction=0)) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(ThreeSigma(bound=10.0).modulate(padded(batch))[:, :6], found)
    assert not three_sigma(torch.ones(1, 3), torch.ones(1, 3, dtype=torch.bool)).any()
    reward = batch.scored_reward.clone()
    reward[0] = torch.nan
    assert not ThreeSigma().modulate(batch.with_(reward=reward))[0].any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: HighEntropy(share=0),
        lambda: Steer(map="cubic"),  # type: ignore[arg-type]
        lambda: Steer(lowest=1.5),
        lambda: ClipCov(share=2),
        lambda: ClipCov(low=5, high=1),
        lambda: ThreeSigma(bound=0),
        lambda: TokenLevel(eps=-1),
    ],
)
def test_settings_out_of_range(make: Any) -> None:
    with pytest.raises(BadInputError):
        make()
