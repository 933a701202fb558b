"""Ensembles of heads on frozen features: each head is the stated optimum, the posterior the inverse Hessian."""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
import torch

from assay.domain import Message, PreferencePair
from assay.errors import BadInputError
from assay.runs.record import start_run
from assay.score import Score
from assay.workspace import Workspace
from assay_rm_training.methods.head_ensemble import FittedHeads, fit_heads, train_heads
from assay_rm_training.methods.heads_config import HeadsConfig
from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
from assay_rm_training.methods.probe import fit_head
from assay_rm_training.runs.heads import write_head_ensemble
from assay_serving.engines.frozen_backbone import Features
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import open_scorer
from assay_serving.scorer import ScoreItem

Floats: TypeAlias = npt.NDArray[np.float64]
METHODS = ("bootstrap", "laplace", "prior")


def pairs(n: int, width: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Chosen and rejected [n, width] that a linear reward of size 1 tells apart as Bradley-Terry says, and weights."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(2.0, 1.0, size=(2, n, width))
    reward = (first - second) @ (np.ones(width) / np.sqrt(width))
    better = rng.random(n) < 1 / (1 + np.exp(-reward))
    chosen, rejected = np.where(better[:, None], first, second), np.where(better[:, None], second, first)
    return chosen, rejected, rng.uniform(0.5, 2.0, n)


def fitted(n: int, width: int, method: Any, members: int = 8, **arguments: Any) -> FittedHeads:
    config = HeadsConfig(method, members, l2=arguments.pop("l2", 0.01), seed=arguments.pop("seed", 0))
    chosen, rejected, weights = pairs(n, width)
    return fit_heads(chosen, rejected, weights, config, np.arange(n), **arguments)


def test_the_posterior_is_the_inverse_of_the_hessian_of_the_stated_loss() -> None:
    """torch's second derivative of n * (weighted mean loss + l2/2 |w|^2), w of features of deviation 1."""
    chosen, rejected, weights = pairs(30, 4)
    heads = fitted(30, 4, "laplace", l2=0.2)
    scale = torch.tensor(np.concatenate([chosen, rejected]).std(axis=0) + 1e-6)
    d, v = torch.tensor(chosen - rejected) / scale, torch.tensor(weights / weights.sum())
    n = weights.sum() ** 2 / (weights**2).sum()

    def loss(w: torch.Tensor) -> Any:
        return n * ((v * torch.nn.functional.softplus(-(d @ w))).sum() + 0.1 * (w @ w))

    w = torch.tensor(heads.mean) * scale
    hessian: Any = torch.autograd.functional.hessian(loss, w)  # type: ignore[no-untyped-call]
    covariance = np.linalg.inv(np.asarray(hessian)) / np.outer(scale, scale)
    factor = heads.posterior.factor
    assert np.allclose(factor @ factor.T, covariance, rtol=1e-5)
    x = np.random.default_rng(3).normal(size=(5, 4))
    assert np.allclose(heads.posterior.variance(x), np.einsum("ni,ij,nj->n", x, covariance, x), rtol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_on_many_pairs_of_a_true_linear_reward_all_methods_spread_as_the_posterior_says(method: str) -> None:
    heads = fitted(1500, 3, method, members=300, l2=1e-3)
    expected = heads.posterior.factor @ heads.posterior.factor.T
    assert np.linalg.norm(np.cov(heads.heads.T) - expected) < 0.25 * np.linalg.norm(expected)
    assert np.linalg.norm(heads.heads.mean(axis=0) - heads.mean) < 0.02


def test_only_prior_and_posterior_differ_where_no_pair_says_anything() -> None:
    """One feature is equal on both sides of every pair: a bootstrap pulls all its members to 0 there."""
    chosen, rejected, weights = pairs(200, 3)
    rejected[:, 2] = chosen[:, 2]
    spread = {
        method: fit_heads(chosen, rejected, weights, HeadsConfig(method, 200, 0.1), range(200)).heads.std(axis=0)[2]  # type: ignore[arg-type]
        for method in METHODS
    }
    assert spread["bootstrap"] < 1e-9
    n = weights.sum() ** 2 / (weights**2).sum()
    prior = 1 / np.sqrt(n * 0.1) / chosen[:, 2].std()
    assert spread["prior"] == pytest.approx(prior, rel=0.15)
    assert spread["laplace"] == pytest.approx(prior, rel=0.15)


def test_a_bootstrap_member_is_the_optimum_of_its_own_weights_of_prompts() -> None:
    """And with the same weight for all, the optimum of all pairs is the probe's."""
    chosen, rejected, weights = pairs(40, 5)
    prompts = np.arange(40) // 4 + 7
    heads = fit_heads(chosen, rejected, weights, HeadsConfig("bootstrap", 3, 0.1, seed=5), prompts)
    scale = np.concatenate([chosen, rejected]).std(axis=0) + 1e-6
    d = (chosen - rejected) / scale
    assert np.allclose(heads.mean, fit_head(d, weights, l2=0.1) / scale, atol=1e-6)
    for member in range(3):
        share = np.random.default_rng([5, member, 1]).exponential(size=10)[prompts - 7]
        assert np.allclose(heads.heads[member], fit_head(d, weights * share, l2=0.1) / scale, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_warm_start_changes_no_head_and_swapped_pairs_negate_them(method: Any) -> None:
    first = fitted(60, 4, method)
    chosen, rejected, weights = pairs(60, 4)
    again = fitted(60, 4, method, start=fitted(60, 4, method, seed=9))
    assert np.allclose(first.heads, again.heads, atol=1e-5)
    swapped = fit_heads(rejected, chosen, weights, HeadsConfig(method, l2=0.01), range(60))
    assert np.allclose(swapped.mean, -first.mean, atol=1e-6)
    if method == "bootstrap":
        assert np.allclose(swapped.heads, -first.heads, atol=1e-6)
    wrong = fitted(60, 4, method, wrong=np.ones(60))  # every label wrong for sure: as if swapped
    assert np.allclose(wrong.mean, -first.mean, atol=1e-6)


def test_members_have_one_level_and_their_spread_can_be_scaled() -> None:
    heads = fitted(50, 4, "prior")
    chosen, rejected, _ = pairs(50, 4)
    rewards = heads.rewards(np.concatenate([chosen, rejected]))
    assert np.allclose(rewards.mean(axis=0), 0.0)
    wider = heads.spread_by(2.0).rewards(np.concatenate([chosen, rejected]))
    assert np.allclose(wider.mean(axis=1), rewards.mean(axis=1))
    assert np.allclose(wider.std(axis=1), 2 * rewards.std(axis=1))


def test_the_penalty_is_chosen_on_prompts_left_out() -> None:
    rng = np.random.default_rng(2)
    chosen, rejected = rng.normal(size=(2, 300, 20))
    noise = fit_heads(chosen, rejected, np.ones(300), HeadsConfig(members=2), range(300))
    rule = fitted(400, 2, "bootstrap", members=2, l2=None)
    assert noise.l2 > 1.0 > rule.l2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"members": 1}, "members"),
        ({"method": "dropout"}, "method"),
        ({"l2": 0.0}, "l2"),
        ({"chosen": np.full((6, 2), np.nan)}, "chosen"),
        ({"rejected": np.zeros((5, 2))}, "chosen"),
        ({"weights": np.zeros(6)}, "weights"),
        ({"weights": -np.ones(6)}, "weights"),
        ({"groups": np.zeros(6, dtype=int)}, "groups"),
        ({"wrong": 1.5}, "wrong"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    chosen, rejected, weights = pairs(6, 2)
    given: dict[str, Any] = {"chosen": chosen, "rejected": rejected, "weights": weights, "groups": range(6), "l2": 0.1}
    given |= change

    def fit() -> None:
        config = HeadsConfig(given.get("method", "bootstrap"), given.get("members", 2), given["l2"])
        wrong = given.get("wrong", 0.0)
        fit_heads(given["chosen"], given["rejected"], given["weights"], config, given["groups"], wrong=wrong)

    with pytest.raises(BadInputError) as caught:
        fit()
    assert caught.value.field == field


@pytest.fixture(scope="module")
def cache() -> FeatureCache:
    return FeatureCache(FrozenBackbone("tiny", max_length=128))


@pytest.fixture(scope="module")
def answers() -> list[PreferencePair]:
    asked = [(Message("user", f"Question {n} about {'abcd'[n % 4]}?"),) for n in range(40)]
    pairs = [PreferencePair(p, f"A good answer {n}.", f"bad {n}") for n, p in enumerate(asked)]
    return [*pairs, replace(pairs[0], chosen="word " * 400)]


def test_saved_heads_score_as_they_were_fitted(
    cache: FeatureCache, answers: list[PreferencePair], workspace: Workspace
) -> None:
    heads = train_heads(cache, answers, HeadsConfig("prior", 4, 0.1))
    assert (heads.pairs, heads.left_out) == (40, 1)
    with start_run(workspace, "loop", {}) as run:
        folder = workspace.models / "heads"
        artifact, spec = write_head_ensemble(run, cache, heads, folder, data="answers.jsonl")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 100_000
    scorer = open_scorer(ModelConfig(str(folder), device="cpu"), workspace.root)
    items = [ScoreItem(pair.prompt, side) for pair in answers[:5] for side in (pair.chosen, pair.rejected)]
    features = [f for f in cache.of(items) if isinstance(f, Features)]
    expected = heads.rewards(np.stack([f.vector for f in features]).astype(np.float64))
    for row, score in enumerate(scorer.score(items)):
        assert isinstance(score, Score)
        assert np.allclose(score.members, expected[row], atol=1e-4)
        assert (score.version, score.tokens) == (spec.version, features[row].tokens)
    card = (folder / "README.md").read_text()
    assert "4 Bradley-Terry heads on the frozen `tiny`" in card
    assert artifact
