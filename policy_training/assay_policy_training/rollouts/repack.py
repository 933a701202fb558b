"""Which generation replicas to empty so that they can take new prompts and newer weights: the packing rule of Laminar.

Covers: the decision alone, which `buffer` carries out when a replica hands its rows back. Leaves out: moving key/value
memory, which is computed again.

Source: Laminar arXiv 2510.12633, from its abstract and a summary; the order (emptiest first) is that of our oracle.
"""

from bisect import bisect, bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

Load = tuple[int, str]  #: rows (or tokens) under way on a replica, above 0; its name


@dataclass(frozen=True)
class Move:
    """All rollouts under way on `source` continue at `target`; `source` is free for new weights."""

    source: str
    target: str
    used: int


def repack(loads: Sequence[Load], capacity: int) -> list[Move]:
    """Empty as many replicas, all of one version of the weights, as the others have room for: the emptiest first, each
    onto the fullest that still holds it. One that took another's rollouts is not moved. `loads`: in ascending order."""
    state, targets, moves = list(loads), set[str](), list[Move]()
    for source in loads:
        if source[1] in targets:
            continue
        del state[bisect_left(state, source)]
        fitting = bisect(state, capacity - source[0], key=lambda load: load[0])
        if not fitting:
            break  # nor do fuller ones fit anywhere
        used, target = state.pop(fitting - 1)
        insort(state, (used + source[0], target))
        targets.add(target)
        moves.append(Move(source[1], target, source[0]))
    return moves
