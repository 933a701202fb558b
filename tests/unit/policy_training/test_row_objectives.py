"""Objectives on rows made by hand: the reference numbers through the plug-ins themselves, and rows they leave out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from rollout_rows import context_of_rows, rollouts
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.plugins.estimators.group_relative import DrGrpo
from assay_policy_training.plugins.objectives.offline import Alol, DirectAdvantage
from assay_policy_training.plugins.objectives.preference import (
    Inpo,
    OnlineDpo,
    RewardDifference,
    Srpo,
    best_and_worst,
)
from assay_policy_training.plugins.objectives.rover import Rover
from assay_policy_training.plugins.objectives.verdicts import Drpo, Pacs
from assay_policy_training.recipe.loading import load_recipe

NAN = float("nan")


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_rover_fits_the_mean_centred_reward() -> None:
    """q .223144 against .5 - .021513 at the first of two tokens; at the last one nothing comes after."""
    assert load_recipe("rover").estimator == DrGrpo(), "not divided by the deviation, as one released script does"
    q = math.log(0.5 / 0.4)
    batch = rollouts(
        [2],
        adv=torch.full((1, 2), 0.5),
        logp_old=torch.zeros(1, 2),
        extras={"mean_logp": torch.tensor([[7.0, -1.0]])},
    )
    context = context_of_rows(batch, extras={"mean_logp": torch.tensor([[9.0, -1.0 - 0.021513]])})
    logp = torch.tensor([[q, q]], requires_grad=True)
    loss, reports = Rover().loss(logp, context)
    assert reports["rover_target"].tolist() == [pytest.approx([0.478487, 0.5], abs=1e-5)]
    assert loss.tolist() == [pytest.approx([(q - 0.478487) ** 2, (q - 0.5) ** 2], abs=1e-6)]
    (gradient,) = torch.autograd.grad(loss.sum(), logp)
    assert gradient.tolist() == [pytest.approx([2 * (q - 0.478487), 2 * (q - 0.5)], abs=1e-5)], "targets are constants"


def test_rover_refuses_a_cut_vocabulary() -> None:
    with pytest.raises(BadInputError, match="whole vocabulary"):
        load_recipe("rover", ["sampling.prune_log_ratio=-13"])


def test_direct_advantage_of_a_step() -> None:
    batch = rollouts(
        [3], adv=torch.tensor([[0.3, 0.3, -1.0]]), logp_old=torch.zeros(1, 3), segment=torch.tensor([[0, 0, 1]])
    )
    loss, _ = DirectAdvantage(beta=2.0).loss(torch.tensor([[0.2, -0.1, -0.5]]), context_of_rows(batch))
    assert loss.tolist() == [pytest.approx([0, 0.00125, 0], abs=1e-7)]


def test_a_lol_weights_the_log_prob_by_the_response_ratio() -> None:
    """A .2, ratio e^.1: each token's gradient is -.2 x 1.105171; the ratio itself has none."""
    batch = rollouts([2], adv=torch.full((1, 2), 0.2), logp_old=torch.zeros(1, 2))
    context = context_of_rows(batch, logp_ref=torch.zeros(1, 2))
    for ratio, expected in (("sequence", [1.105171] * 2), ("token", [math.exp(0.3), math.exp(-0.2)]), ("none", [1, 1])):
        logp = torch.tensor([[0.3, -0.2]], requires_grad=True)
        loss, _ = Alol(ratio=ratio).loss(logp, context)  # type: ignore[arg-type]
        (gradient,) = torch.autograd.grad(loss.sum(), logp)
        assert gradient.tolist() == [pytest.approx([-0.2 * weight for weight in expected], abs=1e-6)]


def test_pacs_leaves_rows_without_a_verdict_out() -> None:
    objective, scores = Pacs(), numbers(1, -1, 0, -0.5)
    known = rollouts([1] * 4, uid=["a"] * 4, acc=numbers(1, 0, 0, 1))
    loss, _ = objective.batch_loss(scores, known)
    assert float(loss) == pytest.approx(0.556634, abs=1e-5)
    more = rollouts([1] * 5, uid=["a"] * 5, acc=numbers(1, 0, NAN, 0, 1))
    widened, _ = objective.batch_loss(numbers(1, -1, 9, 0, -0.5), more)
    assert float(widened) == pytest.approx(float(loss))
    nothing, reports = objective.batch_loss(scores, rollouts([1] * 4))
    assert float(nothing) == 0
    assert reports == {}


def test_drpo_counts_groups_of_one_class() -> None:
    objective = Drpo(max_length=10, beta=0.0)
    batch = rollouts([2, 6, 5, 9, 3, 3], uid=list("aaaabb"), acc=numbers(1, 1, 0, 0, 1, 1))
    loss, reports = objective.batch_loss(numbers(-0.5, -0.7, -0.6, -0.9, -1, -1), batch)
    assert float(loss) == pytest.approx(-0.245278 / 2, abs=1e-5)
    assert reports["drpo_mixed_groups"] == 0.5
    none, _ = objective.batch_loss(numbers(-1, -1), batch.select([4, 5]))
    assert float(none) == 0
    with pytest.raises(BadInputError, match="max_length"):
        load_recipe("drpo", ["sampling.max_new_tokens=500"])


def test_drpo_guard_is_the_square_of_what_is_too_much() -> None:
    """KL .1 a token, delta .02, beta 10: value .8 x .1, gradient .8 times the KL's."""
    batch = rollouts([2, 4], acc=numbers(1, 1), logp_old=torch.full((2, 4), -0.9))
    scores = numbers(-1.0, -1.0).requires_grad_()
    loss, reports = Drpo(max_length=4, beta=10.0, delta=0.02).batch_loss(scores, batch)
    assert reports["drpo_kl"] == pytest.approx(0.1)
    assert float(loss.detach()) == pytest.approx(0.08)
    (gradient,) = torch.autograd.grad(loss, scores)
    assert gradient.tolist() == pytest.approx([-0.8 * 2 / 6, -0.8 * 4 / 6])


def test_pairs_are_the_best_and_the_worst_of_a_group() -> None:
    reward, group = numbers(1, NAN, 3, 2, 5, 5, 0), torch.tensor([0, 0, 0, 0, 1, 1, 2])
    assert best_and_worst(reward, group).tolist() == [[2, 0]]


def test_inpo_of_a_pair() -> None:
    """D_theta .8, D_ref .3, D_old .5 as log-prob sums of two tokens."""
    objective = Inpo(eta=0.5, tau=0.2)
    batch = rollouts(
        [2, 2, 2],
        uid=list("aab"),
        adv=torch.zeros(3, 2),
        reward=numbers(1, 0, 4),
        logp_old=torch.tensor([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]),
    )
    context = context_of_rows(batch, logp_ref=torch.tensor([[0.1, 0.2], [0.0, 0.0], [0.0, 0.0]]))
    scores = objective.row_scores(torch.tensor([[0.6, 0.4], [0.2, 0.0], [9.0, 9.0]]), context)
    loss, reports = objective.batch_loss(scores.double(), batch)
    assert float(loss) == pytest.approx(0.3844, abs=1e-5)
    assert reports["pairs"] == 1
    without, _ = objective.batch_loss(numbers(1, 2), rollouts([1, 1], uid=["a", "a"]))
    assert float(without) == 0


def test_online_dpo_takes_the_best_and_the_worst_of_each_group() -> None:
    batch = rollouts([1] * 6, uid=list("aaabbb"), reward=numbers(0.2, 0.9, 0.1, 3, 3, 3))
    scores = numbers(5, 1.0, 0.2, 7, 8, 9)
    loss, reports = OnlineDpo().batch_loss(scores, batch)
    assert float(loss) == pytest.approx(0.653947, abs=1e-5)
    assert reports["pairs"] == 1, "a group of equal rewards has no pair"
    assert float(OnlineDpo(loss="ipo").batch_loss(scores, batch)[0]) == pytest.approx(17.64)


def test_prdp_takes_all_pairs_of_a_group_with_rewards() -> None:
    logp_old = torch.tensor([[0.0], [0.0], [0.0], [0.0]])
    batch = rollouts(
        [1] * 4, uid=list("aaab"), reward=numbers(1, 0, NAN, 0), logp_old=logp_old, logp_ref=torch.zeros(4, 1)
    )
    loss, reports = RewardDifference(beta=0.5, clip=10).batch_loss(numbers(0.9, -0.3, 50, 60), batch)
    assert float(loss) == pytest.approx(0.16, abs=1e-5)
    assert reports == {"pairs": 1, "clip_fraction": pytest.approx(1 / 3)}
    nothing, reports = RewardDifference().batch_loss(numbers(1, 2), batch.select([2, 3]))
    assert (float(nothing), reports) == (0, {"pairs": 0})


def test_srpo_of_a_pair_and_of_half_a_pair() -> None:
    """g(w|l) .6, g(l|l) -.2, g(l|w) -.4, g(w|w) .1; plain answers as far apart as g(w|w) and g(l|l)."""
    rows = [(0, None, 1.0), (1, None, 0.0), (0, 1, 1.0), (1, 1, 0.0), (1, 0, 0.0), (0, 0, 1.0)]
    items = tuple(
        PromptItem((), meta={"recorded": {"place": answer}, "previous_answer": previous})
        for answer, previous, _ in rows
    )
    batch = rollouts([1] * 6, uid=["a"] * 6, items=items, reward=numbers(*(reward for _, _, reward in rows)))
    scores = numbers(0.3, 0.0, 0.6, -0.2, -0.4, 0.1)
    for mix in (0.0, 0.25):
        loss, reports = Srpo(beta=0.5, mix=mix).batch_loss(scores, batch)
        assert float(loss) == pytest.approx((1 - mix) * 0.03625, abs=1e-6)
        assert reports["pairs"] == 1
    nothing, reports = Srpo().batch_loss(scores[:4], batch.select([0, 1, 2, 3]))
    assert float(nothing) == 0
    assert reports["pairs"] == 0


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Pacs(baseline="mean"), "objective.baseline"),  # type: ignore[arg-type]
        (lambda: Pacs(beta=0), "objective.beta"),
        (lambda: Drpo(max_length=0), "objective.max_length"),
        (lambda: Drpo(max_length=1, tau=0), "objective.tau"),
        (lambda: Inpo(eta=0.1, tau=0.2), "objective.tau"),
        (lambda: Srpo(mix=2), "objective.mix"),
        (lambda: OnlineDpo(loss="hinge"), "objective.loss"),  # type: ignore[arg-type]
        (lambda: RewardDifference(clip=0), "objective.clip"),
        (lambda: Alol(clip=2), "objective.clip"),
        (lambda: Alol(ratio="row"), "objective.ratio"),  # type: ignore[arg-type]
        (lambda: Rover(rho=0), "objective.rho"),
        (lambda: DirectAdvantage(beta=0), "objective.beta"),
    ],
)
def test_wrong_settings_are_named(make: Any, field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        make()
    assert caught.value.field == field
