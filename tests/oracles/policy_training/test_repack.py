"""Packing of replicas: the oracle "repack: B(20)->C(70)->90; A(30) stays; freed B", and what holds for any load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import BadInputError
from assay_policy_training.rollouts.repack import ActorLoad, Move, repack


def test_oracle() -> None:
    replicas = [ActorLoad("A", 30, 100, 1), ActorLoad("B", 20, 100, 1), ActorLoad("C", 70, 100, 1)]
    assert repack(replicas) == [Move("B", "C", 20)]


def test_versions_are_not_mixed() -> None:
    assert repack([ActorLoad("A", 30, 100, 1), ActorLoad("B", 20, 100, 2)]) == []
    assert repack([ActorLoad("A", 30, 100, 1), ActorLoad("B", 0, 100, 1)]) == [], "an empty one is free already"


loads = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 2)), max_size=8)


@given(loads)
def test_nothing_is_lost_and_nothing_overflows(given_loads: list[tuple[int, int]]) -> None:
    replicas = {str(n): ActorLoad(str(n), used, 100, version) for n, (used, version) in enumerate(given_loads)}
    used = {name: replica.used for name, replica in replicas.items()}
    for move in repack(list(replicas.values())):
        assert replicas[move.source].version == replicas[move.target].version
        assert used[move.source] == move.used == replicas[move.source].used, "moved once, whole"
        used[move.source], used[move.target] = 0, used[move.target] + move.used
    assert sum(used.values()) == sum(replica.used for replica in replicas.values())
    assert all(tokens <= 100 for tokens in used.values())


def test_loads_are_checked() -> None:
    with pytest.raises(BadInputError, match="101 of 100"):
        ActorLoad("A", 101, 100, 0)
