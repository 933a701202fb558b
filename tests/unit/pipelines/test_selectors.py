"""Selectors of pairs worth a label: what each picks on small examples, and what all of them keep to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from assay.errors import BadInputError
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.disagreement import MemberDisagreement
from assay_pipelines.online.selectors.diversity import DiversePairs
from assay_pipelines.online.selectors.information_gain import greedy_design
from assay_pipelines.online.selectors.kind import SELECTORS, Pick, require
from assay_pipelines.online.selectors.margin import SmallestMargin
from assay_pipelines.online.selectors.optimism import OptimisticChoice
from assay_pipelines.online.selectors.posterior import PosteriorDraws
from assay_pipelines.online.selectors.two_reward import RewardDisagreement
from assay_serving.engines.heads import Posterior

PROMPTS, GROUP, MEMBERS, FEATURES = 4, 4, 5, 6


def candidates(seed: int = 0) -> Candidates:
    """All 24 pairs of 4 prompts with 4 responses each, with everything that a selector may need."""
    rng = np.random.default_rng(seed)
    within = [(a, b) for a in range(GROUP) for b in range(a + 1, GROUP)]
    first, second = (
        np.array([GROUP * p + pair[side] for p in range(PROMPTS) for pair in within], dtype=np.int64) for side in (0, 1)
    )
    rows = PROMPTS * GROUP
    return Candidates(
        first=first,
        second=second,
        prompt=first // GROUP,
        reward=rng.normal(size=rows),
        members=rng.normal(size=(rows, MEMBERS)),
        other=rng.normal(size=rows),
        features=rng.normal(size=(rows, FEATURES)),
        logp=rng.normal(size=rows) - 9,
        logp_ref=rng.normal(size=rows) - 9,
        posterior=Posterior(mean=rng.normal(size=FEATURES), factor=0.5 * np.eye(FEATURES)),
    )


def chosen(selector: Any, offered: Candidates, count: int, seed: int = 0) -> list[Pick]:
    require(selector, offered)
    return list(selector.choose(offered, count, np.random.default_rng(seed)))


@pytest.mark.parametrize("name", SELECTORS.members)
def test_every_selector_returns_different_pairs_up_to_the_count(name: str) -> None:
    offered, selector = candidates(), SELECTORS.create(name)
    assert chosen(selector, offered, 0) == []
    picks = chosen(selector, offered, 3)
    assert len({pick.pair for pick in picks}) == 3
    assert all(pick.why and np.isfinite(list(pick.why.values())).all() for pick in picks)
    assert picks == chosen(selector, offered, 3)
    everything = chosen(selector, offered, 1000)
    assert sorted(pick.pair for pick in everything) == list(range(len(offered)))
    nothing = replace(offered, first=offered.first[:0], second=offered.second[:0], prompt=offered.prompt[:0])
    assert chosen(selector, nothing, 3) == []


@pytest.mark.parametrize("name", SELECTORS.members)
def test_a_response_whose_numbers_are_missing_is_in_no_pick(name: str) -> None:
    offered = candidates()
    for values in (offered.reward, offered.members, offered.other, offered.features, offered.logp, offered.logp_ref):
        assert values is not None
        values[5] = np.nan
    pairs = {pick.pair for pick in chosen(SELECTORS.create(name), offered, 1000)}
    with_5 = set(np.flatnonzero((offered.first == 5) | (offered.second == 5)).tolist())
    assert (pairs & with_5 == set()) is (name != "random")
    assert pairs | with_5 == set(range(len(offered)))


@pytest.mark.parametrize("name", SELECTORS.members)
def test_swapping_the_responses_of_every_pair_changes_no_pick(name: str) -> None:
    offered, selector = candidates(), SELECTORS.create(name)
    swapped = replace(offered, first=offered.second, second=offered.first)
    assert [p.pair for p in chosen(selector, swapped, 8)] == [p.pair for p in chosen(selector, offered, 8)]


@pytest.mark.parametrize("name", [name for name in SELECTORS.members if SELECTORS.create(name).needs])
def test_a_need_that_is_not_met_is_one_line(name: str) -> None:
    selector = SELECTORS.create(name)
    for need in selector.needs:
        without: Any = {need: None}
        with pytest.raises(BadInputError, match=rf"field 'selector': {name} needs {need} \([\w -]+\)") as refused:
            require(selector, replace(candidates(), **without))
        assert "\n" not in str(refused.value)


def pairs_of(reward: list[float], **values: Any) -> Candidates:
    """Response 2i against 2i + 1, each pair of its own prompt."""
    first = np.arange(0, len(reward), 2)
    return Candidates(first, first + 1, np.arange(len(first)), np.array(reward), **values)


def test_margin_takes_the_nearest_rewards_first_and_equals_at_random() -> None:
    offered = pairs_of([1.0, 0.0, 2.0, 2.5, 3.0, 3.1, 0.0, np.nan])
    assert [(p.pair, round(p.why["margin"], 6)) for p in chosen(SmallestMargin(), offered, 9)] == [
        (2, 0.1),
        (1, 0.5),
        (0, 1.0),
    ]
    equal = pairs_of([1.0, 0.0] * 6)
    assert len({chosen(SmallestMargin(), equal, 1, seed)[0].pair for seed in range(40)}) == 6


def test_disagreement_by_preference_by_margin_and_by_order() -> None:
    members = np.array([[9, 5.0], [0, 0], [0.2, -0.2], [0, 0], [1, 1], [0, 0], [3.0, 0.0], [0, 0]])
    offered = pairs_of([0.0] * 8, members=members)
    by_margin = chosen(MemberDisagreement(by="margin"), offered, 9)
    assert [(p.pair, p.why["spread"]) for p in by_margin] == [(0, 2.0), (3, 1.5), (1, 0.2), (2, 0.0)]
    by_order = chosen(MemberDisagreement(by="order"), offered, 9)
    assert [(p.pair, p.why["agreement"]) for p in by_order] == [(1, 0.5), (3, 0.75), (0, 1.0), (2, 1.0)]
    by_preference = chosen(MemberDisagreement(), offered, 9)
    assert [p.pair for p in by_preference] == [3, 1, 0, 2], "that both are far above is no doubt about the label"
    assert by_preference[0].why["preference_spread"] == pytest.approx((1 / (1 + np.exp(-3)) - 0.5) / 2)
    constant = replace(offered, members=members + np.array([100.0, -7.0]))
    assert [p.pair for p in chosen(MemberDisagreement(), constant, 9)] == [3, 1, 0, 2]


def test_two_rewards_are_compared_in_units_of_their_own_spread() -> None:
    reward, other = [4.0, 0, 0, 4, 4, 0, 0, 4], np.array([0.2, 0, 0.1, 0, -0.1, 0, 0, 0.2])
    offered = pairs_of(reward, other=other)  # margins 1, -1, 1, -1 and, over root mean square, 1.26, .63, -.63, -1.26
    assert [p.pair for p in chosen(RewardDisagreement(), offered, 2)] in ([1, 2], [2, 1])
    scaled = replace(offered, other=1000 * other)
    assert [p.pair for p in chosen(RewardDisagreement(), scaled, 9)] == [
        p.pair for p in chosen(RewardDisagreement(), offered, 9)
    ]
    by_order = chosen(RewardDisagreement(by="order"), offered, 9)
    products = [p.why["margin"] * p.why["other_margin"] for p in by_order]
    assert products == sorted(products)
    assert [p.pair for p in chosen(RewardDisagreement(), replace(offered, other=np.zeros(8)), 9)] != []


def one_prompt(rows: int, **values: Any) -> Candidates:
    first, second = np.triu_indices(rows, 1)
    return Candidates(first, second, np.zeros(len(first), np.int64), reward=np.zeros(rows), **values)


def test_posterior_compares_the_best_responses_of_two_draws() -> None:
    """Of two members, the first ranks 0 > 2 > 1, the second 1 > 2 > 0: both draws the same in half of the cases."""
    offered = one_prompt(3, members=np.array([[2.0, 0], [0, 2], [1, 1]]))
    drawn = [chosen(PosteriorDraws(by="members"), offered, 1, seed)[0].pair for seed in range(600)]
    shares = np.bincount(drawn, minlength=3) / 600  # pairs (0, 1), (0, 2), (1, 2)
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.06)


def test_prompts_take_turns_for_posterior_and_optimism() -> None:
    offered = candidates()
    for name in ("posterior", "optimism"):
        prompts = [int(offered.prompt[p.pair]) for p in chosen(SELECTORS.create(name), offered, 1000)]
        assert all(sorted(prompts[turn : turn + PROMPTS]) == list(range(PROMPTS)) for turn in range(0, 24, PROMPTS))


def test_information_gains_sum_to_the_log_determinant() -> None:
    rng = np.random.default_rng(3)
    x, margin = rng.normal(size=(12, 5)), rng.normal(size=12)
    picks = greedy_design(x, margin, 7, rng)
    chance = 1 / (1 + np.exp(-margin))
    weight = chance * (1 - chance)

    def entropy_less(pairs: list[int]) -> float:
        return float(0.5 * np.linalg.slogdet(np.eye(5) + (x[pairs].T * weight[pairs]) @ x[pairs])[1])

    pairs = [pick.pair for pick in picks]
    assert sum(pick.why["gain"] for pick in picks) == pytest.approx(entropy_less(pairs))
    for place in range(7):  # each is the best there is, given those before it
        others = [entropy_less([*pairs[:place], pair]) for pair in range(12) if pair not in pairs[:place]]
        assert entropy_less(pairs[: place + 1]) == pytest.approx(max(others))


def test_a_copy_of_a_pair_is_not_bought_twice_in_a_batch() -> None:
    directions = np.array([[3.0, 0], [0, 0], [3, 0], [0, 0], [0, 2.5], [0, 0]])
    posterior = Posterior(np.zeros(2), np.eye(2))
    offered = pairs_of(
        [0.0] * 6,
        features=directions,
        posterior=posterior,
        members=directions @ np.array([[1, -1, 0, 0], [0, 0, 1, -1]]),
    )
    for by in ("posterior", "members"):
        assert {p.pair for p in chosen(SELECTORS.create("information_gain", {"by": by}), offered, 2)} >= {2}
    assert {p.pair for p in chosen(SELECTORS.create("disagreement", {"by": "margin"}), offered, 2)} == {0, 1}
    diverse = {"settings": {"by": "margin"}, "weight": 0.4}
    assert {p.pair for p in chosen(SELECTORS.create("diversity", diverse), offered, 2)} >= {2}


def test_the_optimistic_value_is_the_supremum_of_value_less_misfit() -> None:
    """MEX: sup over w of w . x - eta (w - mean)^T S^-1 (w - mean) / 2, by a general optimiser."""
    rng = np.random.default_rng(5)
    features, factor, mean, eta = rng.normal(size=(2, 3)), rng.normal(size=(3, 3)), rng.normal(size=3), 0.7
    offered = one_prompt(2, features=features, posterior=Posterior(mean, factor))
    (pick,) = chosen(OptimisticChoice(eta=eta), offered, 1)
    best, other = features[np.argsort(-(features @ mean))]
    inverse = np.linalg.inv(factor @ factor.T)
    found = minimize(lambda w: -(w @ (other - best) - eta * (w - mean) @ inverse @ (w - mean) / 2), mean)
    assert pick.why["value"] == pytest.approx(-found.fun, rel=1e-6)


def test_the_reference_comparator_is_a_draw_of_the_reference() -> None:
    reference = np.array([0.7, 0.2, 0.1])
    logp = np.log([0.2, 0.3, 0.5])  # responses by the policy, weighed back
    members = np.array([[0.0, 0], [0, 0], [9, 9]])  # 2 is the best over any comparator
    offered = one_prompt(3, members=members, logp=logp, logp_ref=np.log(reference) + logp)
    selector = OptimisticChoice(by="members", comparator="reference")
    drawn = [chosen(selector, offered, 1, seed)[0].pair for seed in range(600)]
    assert (np.array(drawn) == 1).mean() == pytest.approx(0.7 + 0.1 / 2, abs=0.08)


def test_diversity_alone_is_greedy_k_center_from_no_difference() -> None:
    x = np.array([[0.01, 0.02], [3, 0], [-3, 0.1], [0, 2], [0.1, 2], [1, 1]])
    features = np.stack([x, np.zeros_like(x)], axis=1).reshape(-1, 2)
    offered = pairs_of([0.0] * 12, features=features)
    picks = chosen(DiversePairs(selector="random", weight=0.0, pool=6), offered, 6)
    assert {picks[0].pair} < {1, 2}
    assert {picks[1].pair} < {3, 4}
    assert [pick.pair for pick in picks][2] == 5, "neither a copy, nor the swap of one, nor a pair without difference"


def test_diversity_takes_turns_over_prompts_before_it_ranks() -> None:
    first = np.array([0, 2, 4, 6])
    members = np.zeros((8, 2))
    members[:, 0] = [9, 0, 8, 0, 7, 0, 1, 0]
    offered = Candidates(first, first + 1, np.array([0, 0, 0, 1]), np.zeros(8), members=members)
    by_turns = chosen(DiversePairs(settings={"by": "margin"}, weight=1.0), offered, 3)
    assert [pick.pair for pick in by_turns] == [0, 3, 1]
    assert [pick.pair for pick in chosen(MemberDisagreement(by="margin"), offered, 3)] == [0, 1, 2]


def test_a_setting_that_is_wrong_is_one_line() -> None:
    with pytest.raises(BadInputError, match="unknown by 'vote'; one of preference, margin, order"):
        SELECTORS.create("disagreement", {"by": "vote"})
    with pytest.raises(BadInputError, match="did you mean disagreement"):
        SELECTORS.create("disagreements")
