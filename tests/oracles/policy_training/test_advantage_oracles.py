"""Reference oracles [OTB], [NGRPO], [CANON], [W-REINFORCE], [OPO], [PassK], [Lite-PPO], [EMPG], [VERL], [RL-PLUS],
[MAGIC], and the dense and sparse gradient of KL to a teacher against finite differences."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from assay_policy_training.core.batch import dr_grpo
from assay_policy_training.core.logprobs import full_kl
from assay_policy_training.plugins.auxiliary.entropy import magic_step
from assay_policy_training.plugins.estimators.canon import canon, high_half
from assay_policy_training.plugins.estimators.gdpo import summed_parts, whiten
from assay_policy_training.plugins.estimators.group_relative import grpo, lite_ppo, ngrpo, opo, pass_at_k
from assay_policy_training.plugins.estimators.optimal_token_baseline import optimal_token_advantage, score_energy
from assay_policy_training.plugins.estimators.signed import signed
from assay_policy_training.plugins.modulators.effective_rank import effective_rank, velocities, with_bonus
from assay_policy_training.plugins.modulators.exploration import exploration_advantage
from assay_policy_training.plugins.modulators.future_kl import future_sum, others_mean
from assay_policy_training.plugins.modulators.steps import empg

TOLERANCE = 1e-5


def f64(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def approx(values: object) -> object:
    return pytest.approx(values, abs=TOLERANCE)


ONE_GROUP = torch.zeros(4, dtype=torch.long)


class TestOptimalTokenBaseline:
    PI = f64([[0.9, 0.5, 0.8], [0.6, 0.7, 0.3]])
    SQUARES = f64([[0.82, 0.40, 0.66], [0.45, 0.52, 0.25]])
    MASK = torch.tensor([[1, 1, 1], [1, 1, 0]]).bool()
    RETURNS = f64([[1, 1, 1], [0, 0, 0]])
    GROUP = torch.zeros(2, dtype=torch.long)

    def test_energy(self) -> None:
        found = score_energy(self.PI.log(), self.SQUARES)
        assert found[0].tolist() == approx([0.02, 0.4, 0.06])
        assert found[1, :2].tolist() == approx([0.25, 0.12])

    def test_energy_is_the_squared_norm_of_the_score(self) -> None:
        logits = torch.tensor([0.3, -1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
        for token in range(4):
            (score,) = torch.autograd.grad(logits.log_softmax(0)[token], logits)
            logp = logits.detach().log_softmax(0)
            energy = score_energy(logp[token], (2 * logp).exp().sum())
            assert float(energy) == pytest.approx(float((score**2).sum()), abs=1e-12)

    def test_advantage_with_zero_tail(self) -> None:
        energy = score_energy(self.PI.log(), self.SQUARES)
        found = optimal_token_advantage(self.RETURNS, energy, self.MASK, self.GROUP)
        assert found[0].tolist() == approx([0.925926, 0.468354, 1.0])
        assert found[1].tolist() == approx([-0.074074, -0.531646, 0.0])

    def test_without_zero_tail_the_longest_row_is_its_own_baseline(self) -> None:
        energy = score_energy(self.PI.log(), self.SQUARES)
        found = optimal_token_advantage(self.RETURNS, energy, self.MASK, self.GROUP, zero_tail=False)
        assert found[0, 2].item() == approx(0.0)
        assert found[0, :2].tolist() == approx([0.925926, 0.468354])

    def test_rows_are_aligned_by_generated_tokens(self) -> None:
        """An observation between two turns moves no baseline."""
        energy = score_energy(self.PI.log(), self.SQUARES)
        plain = optimal_token_advantage(self.RETURNS, energy, self.MASK, self.GROUP)
        order = [0, 2, 3]
        mask = torch.zeros(2, 4, dtype=torch.bool)
        wide, returns = torch.full((2, 4), 9.0, dtype=torch.float64), torch.zeros(2, 4, dtype=torch.float64)
        mask[0, order], wide[0, order], returns[0, order] = self.MASK[0], energy[0], self.RETURNS[0]
        mask[1, :3], wide[1, :3], returns[1, :3] = self.MASK[1], energy[1], self.RETURNS[1]
        found = optimal_token_advantage(returns, wide, mask, self.GROUP)
        assert found[0, order].tolist() == approx(plain[0].tolist())
        assert found[1, :3].tolist() == approx(plain[1].tolist())
        assert found[0, 1] == 0

    def test_a_row_alone_gets_nothing(self) -> None:
        found = optimal_token_advantage(self.RETURNS, torch.ones(2, 3), self.MASK, torch.tensor([0, 1]))
        assert not found.any()

    def test_the_baseline_has_the_least_variance(self) -> None:
        """Of all baselines of a position the energy-weighted mean makes sum W (G - b)^2 smallest."""
        weight, returns = f64([0.02, 0.25, 0.4, 0.1]), f64([1, 0, 0.5, 1])
        energy, mask = weight[:, None], torch.ones(4, 1, dtype=torch.bool)
        found = optimal_token_advantage(returns[:, None], energy, mask, ONE_GROUP)[:, 0]
        best = float(returns[0] - found[0])
        power = [float((weight * (returns - b) ** 2).sum()) for b in (best - 0.05, best, best + 0.05)]
        assert power[1] < min(power[0], power[2])


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0, 0, 0, 0], [-0.447213] * 4),
        ([1, 0, 0, 0], [1.095443, -0.730295, -0.730295, -0.730295]),
        ([1, 1, 1, 1], [0.0] * 4),
    ],
)
def test_ngrpo(rewards: list[float], expected: list[float]) -> None:
    assert ngrpo(f64(rewards), ONE_GROUP).tolist() == approx(expected)


METRIC = f64([0.9, 0.8, 0.2, 0.1])


@pytest.mark.parametrize(
    ("rewards", "mu", "expected"),
    [
        ([1, 0, 1, 0], 1.0, [0.5, -0.5, 0.5, -0.5]),
        ([1, 0, 1, 0], 0.0, [0.5, -0.5, 0.5, -0.5]),
        ([1, 1, 1, 0], 1.0, [0.5, 0.5, 0.0, -1.0]),
        ([1, 1, 1, 0], 0.0, [0.0, 0.0, 0.5, -0.5]),
        ([1, 1, 1, 0], 0.5, [0.25, 0.25, 0.25, -0.75]),
    ],
)
def test_canon(rewards: list[float], mu: float, expected: list[float]) -> None:
    high = high_half(METRIC, ONE_GROUP, torch.ones(4, dtype=torch.bool))
    assert high.tolist() == [True, True, False, False]
    assert canon(f64(rewards), ONE_GROUP, high, mu=mu).tolist() == approx(expected)


def test_canon_of_equal_halves_is_dr_grpo_and_of_unequal_ones_is_not() -> None:
    reward = f64([1, 0.3, 0.9, 0, 0.2])
    whole = torch.ones(5, dtype=torch.bool)
    group = torch.zeros(5, dtype=torch.long)
    metric = f64([3, 1, 2, 5, 4])
    even = canon(reward[:4], group[:4], high_half(metric[:4], group[:4], whole[:4]), mu=0.5)
    assert even.tolist() == approx(dr_grpo(reward[:4], group[:4]).tolist())
    high = high_half(metric, group, whole)
    assert high.tolist() == [True, False, False, True, True], "the odd row goes to the high half"
    odd = canon(reward, group, high, mu=0.5)
    assert (odd - dr_grpo(reward, group)).abs().max() > 0.01


def test_directional_canon_scales_the_rewards_of_one_half() -> None:
    """By length: long rows alpha R - mean_short, short rows R - alpha mean_long; by entropy the other way round."""
    reward = f64([1, 1, 1, 0])
    high = torch.tensor([True, True, False, False])
    length = canon(reward, ONE_GROUP, high, mu=1.0, alpha=0.5, scaled_high=True)
    assert length.tolist() == approx([0.5 - 0.5, 0.5 - 0.5, 1 - 0.5, 0 - 0.5])
    entropy = canon(reward, ONE_GROUP, high, mu=1.0, alpha=0.5, scaled_high=False)
    assert entropy.tolist() == approx([1 - 0.25, 1 - 0.25, 0.5 - 1, 0 - 1])


def test_weighted_reinforce() -> None:
    assert signed(f64([1, 0, torch.nan]), positive=0.1, negative=1.0).tolist() == approx([0.1, -1.0, 0.0])


def test_opo() -> None:
    found = opo(f64([1, 0, 0, 1]), torch.tensor([10, 30, 40, 20]), ONE_GROUP)
    assert found.tolist() == approx([0.7, -0.3, -0.3, 0.7])


def test_pass_at_k() -> None:
    group = torch.zeros(3, dtype=torch.long)
    assert pass_at_k(f64([0.9, 0.4, 0.1]), group).tolist() == approx([0.5, 0.0, 0.0])
    deviation = float(f64([0.9, 0.4, 0.1]).std())
    by_std = pass_at_k(f64([0.9, 0.4, 0.1]), group, by_std=True)
    assert by_std.tolist() == approx([0.5 / deviation, 0.0, 0.0])
    assert pass_at_k(f64([0.9, 0.9, 0.1]), group).tolist() == [0.0, 0.0, 0.0], "two best rows are equal"


TWO_GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def test_lite_ppo() -> None:
    found = lite_ppo(f64([1, 0, 0, 1, 1, 1, 1, 0]), TWO_GROUPS)
    assert found.tolist() == approx([1, -1, -1, 1, 0.5, 0.5, 0.5, -1.5])


def test_gdpo_of_one_part_is_grpo_whitened_by_hand() -> None:
    reward = f64([1, 0, 0, 1, 1, 1, 1, 0])
    lengths = torch.tensor([2, 1, 3, 1, 1, 1, 2, 2])
    total = summed_parts({"a": reward}, {"a": 1.0}, TWO_GROUPS)
    assert total.tolist() == approx(grpo(reward, TWO_GROUPS).tolist())
    tokens = torch.repeat_interleave(total, lengths)
    expected = (total - tokens.mean()) / (tokens.var() + 1e-8).sqrt()
    assert whiten(total, lengths).tolist() == approx(expected.tolist())


def test_gdpo_keeps_apart_what_a_sum_makes_equal() -> None:
    """Rows with (1, 0) and (0, 1) have one sum; a part that varies little still has its say."""
    parts = {"big": f64([10, 0, 10, 0]), "small": f64([0.0, 0.1, 0.1, 0.0])}
    by_sum = grpo(parts["big"] + parts["small"], ONE_GROUP)
    found = summed_parts(parts, {"big": 1.0, "small": 1.0}, ONE_GROUP)
    assert float(by_sum[2] - by_sum[0]) < 0.02
    assert float(found[2] - found[0]) > 1.0


class TestEmpg:
    ENTROPY = f64([[0.2, 1.0], [0.6, 0.4]])
    ADV = f64([[1, 1], [-1, -1]])
    MASK = torch.ones(2, 2, dtype=torch.bool)
    SEGMENT = torch.tensor([[0, 1], [0, 1]])
    FINAL = (1.467309, 0.512145, -0.825646, -1.153808)

    def test_oracle(self) -> None:
        found = empg(self.ADV, self.ENTROPY, self.MASK, self.SEGMENT, k=1.0, k_next=1.0, zeta=0.1)
        assert found.flatten().tolist() == approx(list(self.FINAL))

    def test_steps_count_once_however_long_they_are(self) -> None:
        """Means are over steps, and a step's entropy is the mean over its tokens."""
        segment = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 1]])
        entropy = f64([[0.1, 0.2, 0.3, 1.0], [0.6, 0.3, 0.4, 0.5]])
        adv = f64([[1.0] * 4, [-1.0] * 4])
        found = empg(adv, entropy, torch.ones(2, 4).bool(), segment, k=1.0, k_next=1.0, zeta=0.1)
        one, two, three, four = self.FINAL
        assert found[0].tolist() == approx([one, one, one, two])
        assert found[1].tolist() == approx([three, four, four, four])

    def test_one_step_a_row_has_no_bonus(self) -> None:
        found = empg(self.ADV, self.ENTROPY, self.MASK, None, k=1.0, k_next=1.0, zeta=0.1)
        again = empg(self.ADV, self.ENTROPY, self.MASK, None, k=1.0, k_next=1.0, zeta=5.0)
        assert torch.equal(found, again)

    def test_released_bug_one_factor_for_the_whole_batch(self) -> None:
        """A widely copied port multiplies all advantages by one number; here steps differ."""
        found = empg(self.ADV, self.ENTROPY, self.MASK, self.SEGMENT, k=1.0, k_next=1.0, zeta=0.0)
        factors = (found - found.mean()) / self.ADV
        assert (factors.max() - factors.min()) > 0.5
        confident, unsure = found[0]
        assert confident > unsure, "the confident step of a good row learns more"


class TestEffectiveRank:
    def test_rank_of_independent_states(self) -> None:
        states = torch.cat([torch.eye(3), torch.ones(1, 3)])
        assert effective_rank(states) == approx(3.0)
        wide = torch.cat([states, torch.zeros(4, 7)], 1)
        assert effective_rank(wide) == pytest.approx(3.0, abs=1e-3), "the smaller Gram matrix gives the same"

    def test_of_too_few_and_of_equal_states(self) -> None:
        assert effective_rank(torch.ones(1, 5)) == 0
        assert effective_rank(torch.ones(6, 5)) == approx(1.0)

    def test_velocity_and_acceleration(self) -> None:
        velocity, acceleration = velocities([2.0, 2.5, 3.2, 3.6])
        assert velocity == approx([0.5, 0.95, 1.033333])
        assert acceleration == approx([0.45, 0.083333])

    @pytest.mark.parametrize(("adv", "extra", "expected"), [(0.8, 0.6, 1.2), (-0.8, 0.6, -0.4), (0.8, -0.3, 0.8)])
    def test_bonus(self, adv: float, extra: float, expected: float) -> None:
        assert float(with_bonus(f64(adv), f64(extra), kappa=2.0)) == approx(expected)

    def test_bonus_never_flips_a_sign(self) -> None:
        adv = torch.linspace(-3, 3, 61, dtype=torch.float64)
        for extra in (0.01, 1.0, 100.0):
            assert torch.equal(with_bonus(adv, torch.full_like(adv, extra), kappa=1.01).sign(), adv.sign())


def test_exploration_factor() -> None:
    assert float(exploration_advantage(f64(1.0), f64(0.2).log())) == approx(0.64)


def test_magic_controller() -> None:
    level, found = 0.0, []
    for entropy in (0.25, 0.18, 0.15, 0.22):
        level, used = magic_step(level, entropy, target=0.2, delta=1e-4, low=0.0, high=5e-3)
        found.append((level, used))
    expected = [(0, 0), (1e-4, 1e-4), (2e-4, 2e-4), (1e-4, 0)]
    assert [pair[0] for pair in found] == pytest.approx([pair[0] for pair in expected], abs=1e-12)
    assert [pair[1] for pair in found] == pytest.approx([pair[1] for pair in expected], abs=1e-12)


def test_magic_stays_in_its_bounds() -> None:
    level, _ = magic_step(5e-3, 0.0, target=0.2, delta=1e-3, low=0.0, high=5e-3)
    assert level == 5e-3


class TestImitation:
    """Two tokens of a vocabulary of three: the trajectory's KL, its gradient, and its two halves."""

    LOGITS = f64([[0.3, -0.2, 0.1], [0.5, 0.0, -0.5], [-0.1, 0.4, 0.2], [0.0, 0.3, -0.6]])  # start, then after y1
    TEACHER = f64([[0.1, 0.1, -0.3], [0.0, 0.2, 0.1], [0.3, -0.3, 0.0], [-0.2, 0.5, 0.1]])
    ROWS = tuple(product(range(3), range(3)))

    def trajectory_kl(self, logits: Tensor) -> Tensor:
        p, q = logits.log_softmax(1), self.TEACHER.log_softmax(1)
        total = torch.zeros((), dtype=torch.float64)
        for one, two in self.ROWS:
            own, theirs = p[0, one] + p[1 + one, two], q[0, one] + q[1 + one, two]
            total = total + own.exp() * (own - theirs)
        return total

    def finite_difference(self) -> Tensor:
        found = torch.zeros_like(self.LOGITS)
        for place in product(range(4), range(3)):
            step = torch.zeros_like(self.LOGITS)
            step[place] = 1e-6
            found[place] = (self.trajectory_kl(self.LOGITS + step) - self.trajectory_kl(self.LOGITS - step)) / 2e-6
        return found

    def halves(self, *, group: bool) -> tuple[Tensor, Tensor]:
        """Expected gradients of the dense loss and of -A log pi with A = -(future KL, less a baseline if `group`)."""
        logits = self.LOGITS.clone().requires_grad_()
        logp = logits.log_softmax(1)
        kl = full_kl(logits, self.TEACHER)
        one, two = torch.tensor(self.ROWS).T
        row_kl = torch.stack([kl[0].expand(9), kl[1 + one]], 1)
        row_logp = torch.stack([logp[0, one], logp[1 + one, two]], 1)
        chance = row_logp.sum(1).exp().detach()
        mask = torch.ones(9, 2, dtype=torch.bool)
        future = future_sum(row_kl.detach(), mask)
        dense = (chance[:, None] * row_kl).sum()
        if group:  # every ordered pair of rows as a group of two: the other row is the baseline
            total = torch.zeros((), dtype=torch.float64)
            for i, j in product(range(9), range(9)):
                pair = torch.tensor([i, j])
                same = torch.zeros(2, dtype=torch.long)
                base = others_mean(future[pair], mask[pair], same, torch.ones(2, dtype=torch.bool))
                total = total + chance[i] * chance[j] * ((future[pair] - base)[0] * row_logp[i]).sum()
            sparse = total
        else:
            sparse = (chance[:, None] * future * row_logp).sum()
        (by_dense,) = torch.autograd.grad(dense, logits, retain_graph=True)
        (by_sparse,) = torch.autograd.grad(sparse, logits)
        return by_dense, by_sparse

    def test_oracle(self) -> None:
        dense, sparse = self.halves(group=False)
        assert dense[0].tolist() == approx([0.02372, -0.110657, 0.086937])
        assert sparse[0].tolist() == approx([0.007184, 0.003578, -0.010762])
        assert (dense + sparse)[0].tolist() == approx([0.030905, -0.10708, 0.076175])

    def test_halves_add_up_to_the_finite_difference(self) -> None:
        dense, sparse = self.halves(group=False)
        torch.testing.assert_close(dense + sparse, self.finite_difference(), atol=1e-8, rtol=0)
        assert sparse.abs().max() > 1e-3, "the dense half alone is another gradient"

    def test_the_baseline_of_the_group_leaves_the_expected_gradient_as_it_is(self) -> None:
        _, plain = self.halves(group=False)
        _, against_others = self.halves(group=True)
        torch.testing.assert_close(against_others, plain, atol=1e-12, rtol=0)

    def test_full_kl_gradient(self) -> None:
        pi, q = f64([[0.5, 0.3, 0.2]]), f64([[0.4, 0.4, 0.2]])
        logits = pi.log().requires_grad_()
        kl = full_kl(logits, q.log())
        assert float(kl.detach()) == approx(0.025267)
        (gradient,) = torch.autograd.grad(kl.sum(), logits)
        assert gradient[0].tolist() == approx([0.098938, -0.093885, -0.005053])

    def test_discounted_future(self) -> None:
        kl, mask = f64([[1, 2, 4, 8]]), torch.tensor([[True, False, True, True]])
        assert future_sum(kl, mask)[0].tolist() == [12, 0, 8, 0]
        assert future_sum(kl, mask, gamma=0.5)[0].tolist() == [0.5 * 4 + 0.25 * 8, 0, 4, 0]
        assert not future_sum(kl, mask, gamma=0.0).any()


@pytest.mark.parametrize("estimator", [ngrpo, pass_at_k, lite_ppo, lambda r, g: opo(r, torch.ones(len(r)), g)])
def test_rows_alone_and_equal_rows_get_nothing(estimator: object) -> None:
    """No ddof, eps or lone row turns a constant group, or noise in it, into a signal."""
    assert callable(estimator)
    reward = f64([1.0, 1.0, 1.0 + 1e-9, 1.0])
    assert estimator(reward, torch.tensor([0, 1, 1, 1])).tolist() == pytest.approx([0, 0, 0, 0], abs=1e-6)


@pytest.mark.parametrize("estimator", [ngrpo, pass_at_k, lite_ppo, lambda r, g: opo(r, torch.arange(1.0, 5), g)])
def test_missing_rewards_get_nothing(estimator: object) -> None:
    assert callable(estimator)
    found = estimator(f64([1.0, torch.nan, 0.0, 0.4]), ONE_GROUP)
    assert found[1] == 0
    assert found.isfinite().all()
    assert found.abs().max() > 0.1


def test_restart_cycles_of_canon() -> None:
    from assay_policy_training.plugins.estimators.canon import cosine_intra

    weights = [cosine_intra(step, largest=0.6, warmup=30, cycle=40) for step in range(150)]
    assert weights[0] == approx(0.02)
    assert weights[30] == approx(0.6)
    assert weights[50] == approx(0.3)
    assert weights[70] == approx(0.6)
    assert all(later < sooner for sooner, later in pairwise(weights[30:70]))
