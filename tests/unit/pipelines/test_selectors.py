"""Selectors of pairs worth a label: what each picks on small examples, and what all of them keep to."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from assay.errors import BadInputError
from assay_pipelines.online.selectors.candidates import Candidates
from assay_pipelines.online.selectors.disagreement import MemberDisagreement
from assay_pipelines.online.selectors.kind import SELECTORS, Pick, require
from assay_pipelines.online.selectors.margin import SmallestMargin

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
        posterior=SimpleNamespace(mean=rng.normal(size=FEATURES), factor=0.5 * np.eye(FEATURES)),
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


def test_disagreement_by_margin_and_by_order() -> None:
    members = np.array([[9, 1.0], [0, 0], [0.2, -0.2], [0, 0], [1, 1], [0, 0], [3.0, 0.0], [0, 0]])
    offered = pairs_of([0.0] * 8, members=members)
    by_margin = chosen(MemberDisagreement(), offered, 9)
    assert [(p.pair, p.why["spread"]) for p in by_margin] == [(0, 4.0), (3, 1.5), (1, 0.2), (2, 0.0)]
    by_order = chosen(MemberDisagreement(by="order"), offered, 9)
    assert [(p.pair, p.why["agreement"]) for p in by_order] == [(1, 0.5), (3, 0.75), (0, 1.0), (2, 1.0)]
    constant = replace(offered, members=members + np.array([100.0, -7.0]))
    assert [p.pair for p in chosen(MemberDisagreement(), constant, 9)] == [0, 3, 1, 2]


def test_a_setting_that_is_wrong_is_one_line() -> None:
    with pytest.raises(BadInputError, match="unknown by 'vote'; one of margin, order"):
        SELECTORS.create("disagreement", {"by": "vote"})
    with pytest.raises(BadInputError, match="did you mean disagreement"):
        SELECTORS.create("disagreements")
