"""Policy objectives beside PPO: reference oracles [GSPO], [CISPO], [SAPO], [DPPO], [Clip-Cov], [HAPO], [Stable], their
gradients at r = 1 and away from it, and the traps of released code."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from rollout_rows import context_of_rows, rollouts
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.aggregation import aggregate, count
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.plugins.objectives.hapo import Hapo, adaptive_clip, differential_factor
from assay_policy_training.plugins.objectives.kl_cov import KlCov, kl_cov_loss
from assay_policy_training.plugins.objectives.ratio_clip import (
    Dro,
    Gpg,
    PpoClip,
    Reinforce,
    Sapo,
    StableReinforce,
    gate,
    pre_clipped,
)
from assay_policy_training.plugins.objectives.sequence_ratio import Gmpo, Gspo, gmpo_ratio, gspo_loss, sequence_ratio
from assay_policy_training.plugins.objectives.truncated_ratio import (
    Aipo,
    Cispo,
    Dppo,
    binary_kl,
    binary_kl_keep,
    tv_keep,
)

LOG_RATIOS = torch.tensor([[0.1, -0.05, 0.2], [-0.3, 0.1, 0.0]])
ROWS = torch.tensor([[True, True, True], [True, True, False]])


def batch_of(log_ratio: Tensor, advantage: Tensor, *, mu: Tensor | None = None) -> tuple[Tensor, RolloutBatch]:
    """(theta's log-probs, differentiable; rows with old's) for log-ratios [B,T] and advantages [B] or [B,T]."""
    rows, width = log_ratio.shape
    old = torch.linspace(-2.5, -0.5, rows * width).reshape(rows, width)
    spread = advantage if advantage.dim() == 2 else advantage[:, None].expand(rows, width)
    batch = rollouts([width] * rows, adv=spread, logp_old=old, entropy=old.abs())
    return (old + log_ratio).requires_grad_(), batch.with_(logp_mu=old if mu is None else mu)


def gradient(objective: Any, logp: Tensor, batch: RolloutBatch, mode: str = "seq-mean-token-mean") -> Tensor:
    """Of the aggregated loss by theta's log-probs."""
    if hasattr(objective, "prepare"):
        batch = objective.prepare(batch)
    loss, _ = objective.loss(logp, context_of_rows(batch))
    total = aggregate(loss, batch.loss_mask, count(batch.loss_mask), mode)
    (found,) = torch.autograd.grad(total, logp)
    return found


def test_gspo_ratios_and_losses() -> None:
    assert sequence_ratio(LOG_RATIOS, ROWS).tolist() == pytest.approx([1.086904, 0.904837], abs=1e-5)
    advantage = torch.tensor([[1.0], [-1.0]]).expand(2, 3)
    old = torch.zeros(2, 3)
    loss, clipped = gspo_loss(LOG_RATIOS, old, advantage, ROWS, clip_low=3e-4, clip_high=4e-4)
    assert loss[ROWS].tolist() == pytest.approx([-1.0004] * 3 + [0.9997] * 2, abs=1e-5)
    assert clipped[ROWS].all()


def test_gspo_gradient_is_that_of_the_rows_ratio() -> None:
    """-A s has gradient -A s / L on each token, within the clip, whatever the tokens' own ratios."""
    logp, batch = batch_of(LOG_RATIOS, torch.tensor([1.0, -1.0]))
    found = gradient(Gspo(clip_low=0.5, clip_high=0.5), logp, batch)
    s = sequence_ratio(LOG_RATIOS, batch.mask)
    expected = torch.stack([-s[0] / 3 / 2, s[1] / 3 / 2])[:, None].expand(2, 3)
    torch.testing.assert_close(found, expected)


def test_gspo_with_token_mean_is_another_objective() -> None:
    """Rows of different lengths: averaging over tokens weighs the longer one more (the recipe refuses it)."""
    batch = rollouts([3, 1], adv=torch.ones(2, 3), logp_old=torch.zeros(2, 3))
    logp = torch.zeros(2, 3, requires_grad=True)
    rows = gradient(Gspo(), logp, batch).sum(1)
    tokens = gradient(Gspo(), logp, batch, "token-mean").sum(1)
    assert rows.tolist() == pytest.approx([-0.5, -0.5])
    assert tokens.tolist() == pytest.approx([-0.75, -0.25])


def test_constant_length_is_the_configured_one() -> None:
    """Dr. GRPO: some ports divide by the padded width, so that the loss changes with what a row is batched with."""
    loss = torch.ones(2, 3)
    mask = torch.tensor([[True, True, False], [True, False, False]])
    found = [
        aggregate(torch.nn.functional.pad(loss, (0, more)), torch.nn.functional.pad(mask, (0, more)), count(mask),
                  "seq-mean-token-sum-norm", max_length=10)
        for more in (0, 5)
    ]  # fmt: skip
    assert [float(value) for value in found] == pytest.approx([3 / 2 / 10] * 2)


@pytest.mark.parametrize("objective", [Gspo(), Gmpo(), PpoClip(), Cispo(eps_high=0.28), Sapo(), StableReinforce()])
def test_extreme_ratios_stay_finite(objective: Any) -> None:
    logp, batch = batch_of(torch.tensor([[300.0, -300.0]]), torch.tensor([-1.0]))
    assert gradient(objective, logp, batch).isfinite().all()


def test_gmpo_is_pessimistic_token_by_token() -> None:
    mask = torch.ones(1, 2, dtype=torch.bool)
    ratio = torch.tensor([[1.0, -1.0]])
    up = gmpo_ratio(ratio, torch.ones(1, 2), mask, clip_low=0.4, clip_high=0.4)
    down = gmpo_ratio(ratio, -torch.ones(1, 2), mask, clip_low=0.4, clip_high=0.4)
    assert float(up) == pytest.approx(math.exp((0.4 - 1.0) / 2))
    assert float(down) == pytest.approx(math.exp((1.0 - 0.4) / 2))


def test_gmpo_gradient_passes_clipped_and_rejected_tokens_by() -> None:
    logp, batch = batch_of(torch.tensor([[0.9, 0.1, 0.2]]), torch.tensor([1.0]))
    found = gradient(Gmpo(), logp, batch)[0]
    ratio = math.exp((0.4 + 0.1 + 0.2) / 3)
    assert found.tolist() == pytest.approx([0.0, -ratio / 3, -ratio / 3], abs=1e-6)
    rejected = batch.with_(loss_mask=torch.tensor([[True, False, True]]))
    assert gradient(Gmpo(), logp, rejected)[0].tolist() == pytest.approx([0.0, 0.0, -ratio / 3], abs=1e-6)


def test_cispo_oracle() -> None:
    """logp -1, logp_old -2, A 1, cap 1.28: loss 1.28, gradient -1.28; in either unit."""
    batch = rollouts([1], adv=torch.ones(1, 1), logp_old=torch.full((1, 1), -2.0))
    logp = torch.full((1, 1), -1.0, requires_grad=True)
    for objective in (Cispo(eps_high=0.28), Cispo(cap_abs=1.28)):
        loss, reports = objective.loss(logp, context_of_rows(batch))
        assert float(loss.detach()) == pytest.approx(1.28, abs=1e-5)
        assert float(gradient(objective, logp, batch)) == pytest.approx(-1.28, abs=1e-5)
        assert float(reports["clip_fraction"]) == 1.0


def test_cispo_cap_says_its_unit() -> None:
    """.28 as a cap itself would shrink every token's gradient; one name for both units is the trap."""
    assert Cispo(eps_high=0.28).cap == pytest.approx(1.28)
    assert Cispo(cap_abs=5.0).cap == 5.0
    for wrong in ({"cap_abs": 0.28}, {}, {"cap_abs": 5.0, "eps_high": 0.28}, {"eps_high": -0.1}):
        with pytest.raises(BadInputError):
            Cispo(**wrong)


def test_cispo_keeps_every_token_and_may_have_a_floor() -> None:
    logp, batch = batch_of(torch.tensor([[3.0, -3.0]]), torch.tensor([1.0]))
    free = gradient(Cispo(eps_high=0.28), logp, batch, "token-mean")[0]
    floored = gradient(Cispo(eps_high=0.28, eps_low=0.2), logp, batch, "token-mean")[0]
    assert free.tolist() == pytest.approx([-0.64, -math.exp(-3) / 2], abs=1e-5)
    assert floored.tolist() == pytest.approx([-0.64, -0.4], abs=1e-5)


def test_aipo_weighs_by_the_samplers_ratio() -> None:
    """Oracle [AIPO] as gradients: theta/mu = .5, 1, 3, 12, whatever old is."""
    ratio = torch.tensor([[0.5, 1.0, 3.0, 12.0]]).log()
    logp, batch = batch_of(torch.zeros(1, 4), torch.tensor([1.0]))
    batch = batch.with_(logp_mu=logp.detach() - ratio)
    assert (-4 * gradient(Aipo(2.0), logp, batch))[0].tolist() == pytest.approx([0.5, 1, 2, 2], abs=1e-5)
    assert (-4 * gradient(Aipo(10.0), logp, batch))[0].tolist() == pytest.approx([0.5, 1, 3, 10], abs=1e-5)
    assert (-4 * gradient(Aipo(None), logp, batch))[0].tolist() == pytest.approx([0.5, 1, 3, 12], abs=1e-5)


def test_bypass_takes_mu_for_old() -> None:
    logp, batch = batch_of(torch.tensor([[0.1, -0.1]]), torch.tensor([1.0]), mu=torch.tensor([[-1.0, -2.0]]))
    bypass = PpoClip(bypass=True)
    assert bypass.needs == {"logp_mu"}
    assert bypass.corrects_behaviour
    assert not PpoClip().corrects_behaviour
    assert PpoClip().needs == {"logp_old"}
    expected = gradient(PpoClip(), logp, batch.with_(logp_old=batch.logp_mu))
    torch.testing.assert_close(gradient(bypass, logp, batch), expected)
    # PPO's own ratio holds the correction: its gradient at theta = old is old/mu, once.
    mild, rows = batch_of(torch.zeros(1, 2), torch.tensor([1.0]))
    assert rows.logp_old is not None
    rows = rows.with_(logp_mu=rows.logp_old - 0.1)
    assert (-2 * gradient(bypass, mild, rows))[0].tolist() == pytest.approx([math.exp(0.1)] * 2, abs=1e-5)


def test_sapo_gate() -> None:
    ratio = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
    value = gate(ratio, 1.0)
    assert value.tolist() == pytest.approx([1.510163, 2.0, 2.924234], abs=1e-5)
    (slope,) = torch.autograd.grad(value.sum(), ratio)
    assert slope.tolist() == pytest.approx([0.940015, 1.0, 0.786448], abs=1e-5)


def test_sapo_is_steeper_for_bad_tokens() -> None:
    logp, batch = batch_of(torch.full((2, 1), 0.5), torch.tensor([1.0, -1.0]))
    found = gradient(Sapo(1.0, 3.0), logp, batch).flatten()
    assert abs(float(found[1])) < abs(float(found[0]))


def test_dppo_keeps_by_probability_not_by_ratio() -> None:
    prob, old, advantage = torch.tensor([0.30, 0.02]), torch.tensor([0.20, 0.001]), torch.ones(2)
    assert (prob - old).tolist() == pytest.approx([0.1, 0.019])
    assert (prob / old).tolist() == pytest.approx([1.5, 20.0])
    keep = tv_keep(prob, old, advantage, eps_low=0.05, eps_high=0.05)
    assert keep.tolist() == [False, True]
    assert tv_keep(prob, old, -advantage, eps_low=0.05, eps_high=0.05).all()


def test_dppo_binary_kl() -> None:
    prob, old = torch.tensor([0.3, 0.02, 0.1]), torch.tensor([0.2, 0.001, 0.2])
    exact = [0.2 * math.log(0.2 / 0.3) + 0.8 * math.log(0.8 / 0.7)]
    exact += [0.001 * math.log(0.001 / 0.02) + 0.999 * math.log(0.999 / 0.98)]
    assert binary_kl(prob, old)[:2].tolist() == pytest.approx(exact, abs=1e-6)
    keep = binary_kl_keep(prob, old, torch.tensor([1.0, 1.0, 1.0]), eps_low=0.02, eps_high=0.02)
    assert keep.tolist() == [False, True, True]
    keep = binary_kl_keep(prob, old, -torch.ones(3), eps_low=0.02, eps_high=0.02)
    assert keep.tolist() == [True, True, False]
    assert binary_kl(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])).abs().max() < 1e-6


@pytest.mark.parametrize("divergence", ["tv", "binary_kl"])
def test_dppo_gradient(divergence: Literal["tv", "binary_kl"]) -> None:
    """Kept tokens weigh min(r, cap); masked ones stay in the denominator."""
    old = torch.tensor([[0.2, 0.001]]).log()
    batch = rollouts([2], adv=torch.ones(1, 2), logp_old=old)
    logp = torch.tensor([[0.30, 0.04]]).log().requires_grad_()
    found = gradient(Dppo(divergence=divergence, eps_high=0.02 if divergence == "binary_kl" else 0.05), logp, batch)
    if divergence == "tv":
        assert found[0].tolist() == pytest.approx([0.0, -10.0])
    else:
        assert found[0, 0] == 0


def test_dro_pulls_back() -> None:
    logp, batch = batch_of(torch.tensor([[0.5, -0.5]]), torch.tensor([1.0]))
    found = gradient(Dro(beta=0.4), logp, batch, "token-mean")[0]
    assert found.tolist() == pytest.approx([(-1 + 0.4 * 0.5) / 2, (-1 - 0.4 * 0.5) / 2], abs=1e-6)


def test_gpg_is_reinforce_and_one_update_only() -> None:
    from assay_policy_training.recipe.loading import load_recipe

    logp, batch = batch_of(torch.zeros(1, 2), torch.tensor([0.7]))
    assert torch.equal(gradient(Gpg(), logp, batch), gradient(Reinforce(), logp, batch))
    with pytest.raises(BadInputError, match="one optimiser step"):
        load_recipe("rloo", ["objective.kind=gpg", "optimisation.minibatches=2"])


def test_pre_clipped_ratio() -> None:
    assert float(pre_clipped(torch.tensor(10.0))) == pytest.approx(6.907755, abs=1e-5)
    raw = torch.tensor([-10, 0.05, 0.5, 12])
    assert pre_clipped(raw).exp().tolist() == pytest.approx([0.001, 1.051271, 1.648721, 1000.0], rel=1e-4)
    # A < 0 at a ratio of 1000: without the dual clip the loss is 1000 times the advantage.
    _, batch = batch_of(torch.zeros(1, 1), torch.tensor([-1.0]))
    assert batch.logp_old is not None
    free, _ = StableReinforce(dual_clip=None).loss(batch.logp_old + 12, context_of_rows(batch))
    held, reports = StableReinforce().loss(batch.logp_old + 12, context_of_rows(batch))
    assert [float(free), float(held)] == pytest.approx([1000.0, 3.0], rel=1e-4)
    assert float(reports["dual_clip_fraction"]) == 1.0


def test_kl_cov_holds_the_tokens_of_highest_covariance() -> None:
    """Oracle [Clip-Cov cov]: .725 on the first row; its token alone gets the KL."""
    old = torch.tensor([[-0.1], [-2.0], [-0.2], [-1.0]])
    batch = rollouts([1] * 4, adv=torch.tensor([[1.0], [1.0], [-1.0], [-1.0]]), logp_old=old)
    prepared = KlCov(share=0.25).prepare(batch)
    assert prepared.extras["kl_cov"].flatten().tolist() == [1, 0, 0, 0]
    logp = (old + 0.1).requires_grad_()
    found = gradient(KlCov(share=0.25, coefficient=2.0), logp, batch, "token-mean").flatten() * 4
    r = math.exp(0.1)
    assert found.tolist() == pytest.approx([-r + 2.0, -r, r, r], abs=1e-5)
    assert kl_cov_loss(torch.tensor(-0.3), torch.tensor(0.0), torch.tensor(True), 2.0) == pytest.approx(0.6)


HAPO_H = [-1.0, -0.650515, -0.349485, 0.0, 1.0]


def test_hapo_adaptive_clip() -> None:
    low, high = adaptive_clip(torch.tensor(HAPO_H), 0.2, 0.2)
    assert low.tolist() == pytest.approx([0.4, 0.330103, 0.269897, 0.2, 0.2], abs=1e-5)
    assert high.tolist() == pytest.approx([0.2, 0.2, 0.2, 0.2, 0.4], abs=1e-5)


@pytest.mark.parametrize(
    ("h", "ratio", "factor"), [(0.5, 1.20, 1.5), (0.5, 1.10, 1.0), (-0.5, 1.20, 1.0), (-0.5, 1.05, 0.5)]
)
def test_hapo_differential_advantage(h: float, ratio: float, factor: float) -> None:
    low, high = adaptive_clip(torch.tensor(h), 0.2, 0.2)
    assert float(differential_factor(torch.tensor(h), torch.tensor(ratio), low, high, 1.0)) == pytest.approx(factor)


def test_hapo_reads_the_whole_batch() -> None:
    entropy = torch.tensor([[0.01, 0.05, 0.2], [1.0, 2.0, 77.0]])
    batch = rollouts([3, 2], entropy=entropy, adv=torch.ones(2, 3), logp_old=torch.zeros(2, 3))
    prepared = Hapo().prepare(batch)
    assert prepared.extras["hapo"][batch.mask].tolist() == pytest.approx(HAPO_H, abs=1e-5)
    assert prepared.extras["hapo"][1, 2] == 0
    parts = [Hapo().loss(torch.zeros(1, 3), context_of_rows(prepared.select([row])))[0] for row in (0, 1)]
    whole, _ = Hapo().loss(torch.zeros(2, 3), context_of_rows(prepared))
    assert torch.equal(torch.cat(parts), whole)


def test_hapo_low_branch_acts() -> None:
    """Released code makes every h positive, so that low entropy neither widens a clip nor shrinks an advantage."""
    batch = rollouts(
        [5], entropy=torch.tensor([[0.01, 0.05, 0.2, 1.0, 2.0]]), adv=torch.ones(1, 5), logp_old=torch.zeros(1, 5)
    )
    prepared = Hapo().prepare(batch)
    assert float(prepared.extras["hapo"].min()) == -1.0
    _, reports = Hapo().loss(torch.zeros(1, 5), context_of_rows(prepared))
    assert reports["hapo_factor"][0].tolist() == pytest.approx([0.0, 0.349485, 0.650515, 1.0, 1.0], abs=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Gspo(clip_low=2.0),
        lambda: Gmpo(clip_low=-0.1),
        lambda: Aipo(cap=0),
        lambda: Sapo(tau_pos=2.0, tau_neg=1.0),
        lambda: Dppo(divergence="chi2"),  # type: ignore[arg-type]
        lambda: Dppo(cap=0),
        lambda: Dro(beta=-1),
        lambda: StableReinforce(largest=1.0),
        lambda: KlCov(share=0),
        lambda: Hapo(clip_low=0.9),
        lambda: Hapo(beta=2.0),
    ],
)
def test_settings_out_of_range(make: Any) -> None:
    with pytest.raises(BadInputError):
        make()
