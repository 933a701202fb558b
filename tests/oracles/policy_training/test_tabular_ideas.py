"""One tabular idea a paper: what each claims, over seeds and with a 95 % interval; and the numbers of small cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata
from tabular.autoregressive_values import AutoregressiveValues, decompose, independent_best, refine
from tabular.boosted_trees import BoostedActorCritic, grow
from tabular.decision_process import Array, DecisionProcess, random_process, softmax
from tabular.dual_values import implicit_maximum, regressed_value, solve_dual
from tabular.effective_horizon import effective_horizon, lock, sqirl
from tabular.exploratory_preference import ExploratoryPreference
from tabular.hypervolume_search import REFERENCE, TREASURES, Learner, hypervolume, quality, random_search
from tabular.option_values import OptionValues, noisy_walks, sign_accuracy
from tabular.twin_distributional_critic import GaussianCritic, optimal_actions
from tabular.value_gradient_model import distracted, fit, value_error

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, clustered_correlation, clustered_mean, wilson

SEEDS = range(10)


def interval(values: list[float] | Array) -> Interval:
    """Of the mean over seeds."""
    result = clustered_mean(np.asarray(values), [str(n) for n in range(len(values))])
    assert result is not None
    return result


# OTA


@pytest.mark.parametrize("option", [1, 4])
def test_option_values_of_straight_walks_are_exact(option: int) -> None:
    method = OptionValues(option, rate=1.0, batches=400)
    values = method.learn(noisy_walks(20, 60, 30, forward=1.0, seed=0), 19, 20, seed=0)
    assert values == pytest.approx(method.exact(np.flip(np.arange(20, dtype=np.float64))), abs=1e-9)
    with pytest.raises(BadInputError, match="option"):
        OptionValues(0)


def test_options_keep_the_sign_of_advantages_far_from_the_goal() -> None:
    """At equal updates, on a line of 120 states; far: more than 60 steps from the goal."""
    near: dict[int, list[float]] = {1: [], 10: []}
    far: dict[int, list[float]] = {1: [], 10: []}
    for seed in SEEDS:
        walks = noisy_walks(120, 200, 80, forward=0.7, seed=seed)
        for option in (1, 10):
            values = OptionValues(option, discount=0.95, rate=0.5).learn(walks, 119, 120, seed=seed)
            right = sign_accuracy(values, 119, 10)
            near[option].append(float(right[-30:].mean()))
            far[option].append(float(right[:60].mean()))
    assert min(near[1] + near[10]) > 0.95, "near the goal both are right"
    assert interval(far[1]).high < 0.5
    assert interval(far[10]).low > 0.9


# Dual RL


def recorded_visits(process: DecisionProcess) -> Array:
    """Of a policy that never takes the last action."""
    behaviour = process.uniform.copy()
    behaviour[:, -1] = 0
    behaviour /= behaviour.sum(1, keepdims=True)
    visits: Array = process.evaluate(behaviour).visits[:, None] * behaviour
    return visits


def test_the_dual_is_the_regularised_optimum_within_recorded_actions() -> None:
    for seed in range(4):
        process = random_process(6, 3, seed=seed)
        recorded = recorded_visits(process)
        solutions = [solve_dual(process, recorded, strength) for strength in (3.0, 1.0, 0.1, 0.01)]
        for solution in solutions:
            assert solution.violation < 1e-6
            assert solution.primal == pytest.approx(solution.dual, abs=1e-6)
            assert solution.visits.sum() == pytest.approx(1, abs=1e-6)
            assert solution.visits[:, -1].max() == 0
        earned = [process.evaluate(solution.policy).start_value for solution in solutions]
        assert earned == sorted(earned), "less regularisation, more return"
        within = DecisionProcess(process.transitions[:, :2], process.rewards[:, :2], process.start, process.discount)
        assert earned[-1] == pytest.approx(float(process.start @ within.optimum()), rel=0.01)


@pytest.mark.parametrize(("weight", "value"), [(0.5, 0.0), (0.6, 1 / 3), (0.7, 1.0)])
def test_implicit_maximum(weight: float, value: float) -> None:
    """The third action is better and was never recorded."""
    found = implicit_maximum(np.array([0.0, 1.0, 5.0]), np.array([0.5, 0.5, 0.0]), weight)
    assert found == pytest.approx(value, abs=1e-9)


def test_gumbel_regression_diverges_where_f_dvl_does_not() -> None:
    """Both are to find the top of normal samples, whose largest is above 3; outside 5 a value is lost."""
    lost = dict.fromkeys(("gumbel", "chi_square"), 0)
    for loss, strength in (("gumbel", 0.1), ("chi_square", 0.99)):
        for seed in range(20):
            samples = np.random.default_rng(seed).normal(size=1000)
            value = regressed_value(loss, samples, strength=strength, rate=0.01)
            lost[loss] += not 1 < value < 5
    assert wilson(lost["gumbel"], 20).low > 0.5
    assert wilson(lost["chi_square"], 20).high < 0.2


# ARSQ


def test_soft_advantages_of_a_joint_table() -> None:
    value, (first, second) = decompose(np.array([[1.0, 0.0], [0.0, 0.0]]), 1.0)
    assert value == pytest.approx(1.743668, abs=1e-6)
    assert first == pytest.approx([-0.430406, -1.050521], abs=1e-6)
    assert second == pytest.approx(np.array([[-0.313262, -1.313262], [-0.693147, -0.693147]]), abs=1e-6)
    q = np.random.default_rng(0).normal(size=(3, 4, 2))
    value, (a, b, c) = decompose(q, 0.5)
    assert value + a[:, None, None] + b[:, :, None] + c == pytest.approx(q)
    joint = softmax(q.reshape(1, -1) / 0.5).reshape(q.shape)
    assert np.exp(a / 0.5)[:, None, None] * np.exp(b / 0.5)[:, :, None] * np.exp(c / 0.5) == pytest.approx(joint)
    assert refine(np.array([[5, 2]]), 3, 2) == [(1, 0, 2, 2)]


def test_parts_that_know_each_other_find_the_best_mode() -> None:
    """Best 1 (10 % of rows), worst -1 in the same first dimension (45 %), middling .1 elsewhere (45 %)."""
    autoregressive, independent = 0, 0
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        x, y = random.choice(9, 2, replace=False), random.choice(9, 3, replace=False)
        modes = np.array([[x[0], y[0]], [x[0], y[1]], [x[1], y[2]]])
        mode = random.permutation(np.repeat([0, 1, 2], [4, 18, 18]))
        rewards = np.array([1.0, -1.0, 0.1])[mode] + 0.05 * random.normal(size=40)
        rows, (best, *_) = refine(modes[mode], 3, 2), refine(modes, 3, 2)
        values = AutoregressiveValues(bins=3)
        values.fit(rows, rewards, epochs=12)
        autoregressive += values.best(4) == best
        independent += independent_best(rows, rewards, 2) == best
    assert wilson(autoregressive, 10).low > 0.6
    assert wilson(independent, 10).high < 0.4


# DSAC-T


def test_refined_critics_do_not_overestimate_and_serve_every_scale_of_rewards() -> None:
    process = random_process(4, 6, seed=0, discount=0.8)
    truth = optimal_actions(process)

    def errors(critic: GaussianCritic, scale: float) -> Array:
        """[runs,S,A] relative to the scale."""
        with np.errstate(over="ignore", invalid="ignore"):
            means = critic.means(process, noise=2.0, scale=scale, runs=12, seed=1)
        difference: Array = means / scale - truth
        return difference

    plain = errors(GaussianCritic(twin=False, expected=False), 1.0)
    refined = errors(GaussianCritic(), 1.0)
    assert interval(plain.mean(axis=(1, 2))).low > 0.3, "a single critic with sampled targets overestimates"
    assert interval(refined.mean(axis=(1, 2))).high < 0
    adjusted, fixed = (
        [np.sqrt((errors(GaussianCritic(adjusted=on), scale) ** 2).mean(axis=(1, 2))) for scale in (0.1, 10.0)]
        for on in (True, False)
    )
    size = float(np.sqrt((truth**2).mean()))
    assert max(interval(sizes).high for sizes in adjusted) < 0.3 * size
    assert interval(fixed[1]).low > 0.95 * size, "at large rewards nothing is learnt"
    assert fixed[0].max() > 10 * size, "at small ones a run diverges"


# VaGraM


def test_a_small_model_keeps_the_dimensions_that_the_value_reads() -> None:
    small: dict[str, list[float]] = {"likelihood": [], "gradient": []}
    for seed in SEEDS:
        data = distracted(400, relevant=2, distracting=4, loudness=3.0, seed=seed)
        for name, weights in (("likelihood", np.ones_like(data.states)), ("gradient", data.gradients())):
            small[name].append(value_error(data, fit(data, weights, 2)))
            assert value_error(data, fit(data, weights, 6)) < 0.03, "with room for everything both are right"
    assert interval(small["likelihood"]).low > 1
    assert interval(small["gradient"]).high < 0.05
    with pytest.raises(BadInputError, match="rank"):
        fit(data, np.ones_like(data.states), 7)


# GBRL


def test_a_tree_splits_where_gradients_differ() -> None:
    observations = np.array([[0, 2], [0, 3], [1, 2], [1, 3]])
    tree = grow(observations, np.array([[1.0], [1.0], [-1.0], [-3.0]]), 1)
    assert tree.splits == ((0, 0),)
    assert tree.leaves.ravel() == pytest.approx([-2.0, 1.0])


def test_shared_trees_earn_the_same_with_half_as_many_and_meet_new_contexts() -> None:
    """Five features of four categories; the best of three actions depends on two of them; 200 of 1024 contexts seen."""
    difference, generalisation, focus, unseen = [], [], [], []
    for seed in SEEDS:
        random = np.random.default_rng(seed)
        contexts, fresh = random.integers(4, size=(200, 5)), random.integers(4, size=(300, 5))
        rule = random.integers(3, size=(4, 2))
        best, fresh_best = (rule[c[:, 1], (c[:, 0] == 1).astype(int)] for c in (contexts, fresh))
        shared, separate = BoostedActorCritic(3), BoostedActorCritic(3, shared=False)
        for method in (shared, separate):
            method.learn(contexts, best, batches=40, size=80, seed=seed)
        assert separate.trees == 2 * shared.trees
        difference.append(shared.earned(contexts, best) - separate.earned(contexts, best))
        unseen.append(shared.earned(fresh, fresh_best))
        generalisation.append(unseen[-1] - shared.earned(contexts, best))
        focus.append(float(np.mean([f in (0, 1) for tree, _ in shared.ensemble for f, _ in tree.splits])))
    assert interval(difference).low > -0.06
    assert interval(difference).high < 0.03
    assert interval(unseen).low > 0.8
    assert interval(generalisation).low > -0.05
    assert interval(focus).low > 0.5  # by chance 0.4


# SQIRL


def test_iterated_values_end_in_the_optimum_and_the_horizon_has_its_numbers() -> None:
    task = lock(3, 0.3, seed=0)
    assert task.iterated(task.steps) == pytest.approx(task.optimal())
    assert task.iterated(1)[0, 0].max() == pytest.approx(0.3), "the random policy's Q prefers the decoy"
    for depth, decoy, k, gap in ((3, 0.3, 3, 0.7), (1, 0.9, 1, 0.1)):
        least, horizon = effective_horizon(lock(depth, decoy, seed=0))
        assert least == k
        assert horizon == pytest.approx(k + np.log(1 / gap**2) / np.log(3))


def test_the_effective_horizon_predicts_where_sqirl_succeeds() -> None:
    """25 tasks of the same states, actions and steps, 100 rollouts a step: rank correlation with the success rate."""
    horizons, successes = [], []
    for depth in range(1, 6):
        for decoy in (0.0, 0.3, 0.6, 0.8, 0.9):
            task = lock(depth, decoy, seed=depth)
            k, horizon = effective_horizon(task)
            best = float(task.optimal()[0, 0].max())
            earned = [task.start_value(sqirl(task, k, 100, seed=seed)) for seed in range(8)]
            horizons.append(horizon)
            successes.append(np.mean(np.array(earned) > best - 1e-9))
    correlation = clustered_correlation(rankdata(horizons), rankdata(successes), [str(n) for n in range(25)])
    assert correlation is not None
    assert correlation.high < -0.5


# MORL-HPO


def test_hypervolumes() -> None:
    corner = np.zeros(2)
    assert hypervolume(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]), corner) == 6
    assert hypervolume(np.array([[1.0, 1.0], [2.0, 2.0], [-1.0, 5.0]]), corner) == 4, "what is dominated adds nothing"


def test_searched_hyperparameters_find_more_of_the_front_on_seeds_of_their_own() -> None:
    def draw(rng: np.random.Generator) -> Learner:
        return Learner(int(rng.integers(2, 9)), float(10 ** rng.uniform(-2, 0)), float(rng.uniform(0.02, 1)))

    searched = random_search(draw, trials=12, seeds=range(3), episodes=400)
    fresh, most = range(100, 120), hypervolume(TREASURES, REFERENCE)
    first, best = (quality(learner, fresh, 400) / most for learner in (Learner(2, 0.5, 0.05), searched))
    assert interval(best - first).low > 0.2
    assert interval(best).low > 0.8


# XPO


def test_the_bonus_of_xpo_finds_what_the_reference_hardly_says() -> None:
    """The best of 10 responses has probability 1e-4 under the reference; 300 labels, with and without it."""
    reference = np.full(10, (1 - 1e-4) / 9)
    reference[0] = 1e-4
    lost = {}
    for alpha in (0.0, 0.03):
        runs = []
        for seed in SEEDS:
            rewards = np.random.default_rng([seed, 0]).uniform(-1, 1, 10)
            rewards[0] = 3.0
            method = ExploratoryPreference(alpha)
            runs.append(method.regret(rewards, reference, np.random.default_rng([seed, 1])))
        lost[alpha] = np.stack(runs)
    assert interval(lost[0.03].sum(axis=1) - lost[0.0].sum(axis=1)).high < 0
    near = {alpha: int((runs[:, -1] < 0.1).sum()) for alpha, runs in lost.items()}
    assert wilson(near[0.03], 10).low > wilson(near[0.0], 10).high


def test_the_gradient_of_xpo() -> None:
    rng, method = np.random.default_rng(0), ExploratoryPreference(0.3)
    log_ref, wins = np.log(rng.dirichlet(np.ones(5))), rng.uniform(0, 4, (5, 5))
    drawn = wins.sum(axis=0)
    x, d = rng.normal(size=5), 1e-6 * np.eye(5)
    losses = [[method.loss(x + sign * row, log_ref, wins, drawn)[0] for sign in (1, -1)] for row in d]
    assert method.loss(x, log_ref, wins, drawn)[1] == pytest.approx(np.diff(losses)[:, 0] / -2e-6, rel=1e-4)
