"""Packing of replicas: the oracle "repack: B(20)->C(70)->90; A(30) stays; freed B", and what holds for any load."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_policy_training.rollouts.repack import Move, repack

CAPACITY = 100


def test_oracle() -> None:
    assert repack([(20, "B"), (30, "A"), (70, "C")], CAPACITY) == [Move("B", "C", 20)]


loads = st.lists(st.integers(1, CAPACITY), max_size=8).map(lambda rows: sorted(zip(rows, "abcdefgh", strict=False)))


@given(loads)
def test_nothing_is_lost_and_nothing_overflows(replicas: list[tuple[int, str]]) -> None:
    rows = {name: used for used, name in replicas}
    used = dict(rows)
    for move in repack(replicas, CAPACITY):
        assert used[move.source] == move.used == rows[move.source], "moved once, whole"
        used[move.source], used[move.target] = 0, used[move.target] + move.used
    assert sum(used.values()) == sum(rows.values())
    assert all(tokens <= CAPACITY for tokens in used.values())


@given(loads)
def test_each_goes_onto_the_fullest_that_holds_it(replicas: list[tuple[int, str]]) -> None:
    """By the rule, replica by replica, without the shortcuts of sorted loads."""
    used, moves = {name: rows for rows, name in replicas}, list[Move]()
    for rows, source in replicas:
        if any(move.target == source for move in moves):
            continue
        fitting = [(used[other], other) for other in used if other != source and 0 < used[other] <= CAPACITY - rows]
        if fitting:
            _, target = max(fitting)
            used[target] += used.pop(source)
            moves.append(Move(source, target, rows))
    assert repack(replicas, CAPACITY) == moves
