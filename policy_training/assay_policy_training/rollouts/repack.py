"""Which generation replicas to empty so that they can take new prompts and newer weights: the packing rule of Laminar.

Covers: the decision alone, which `buffer` carries out when a replica hands its rows back. Leaves out: moving key/value
memory, which is computed again.

Source: Laminar arXiv 2510.12633, from its abstract and a summary; the order (emptiest first) is that of our oracle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from assay.errors import BadInputError


@dataclass(frozen=True)
class ActorLoad:
    """One engine: rows (or tokens) under way and at most, and the version of its weights."""

    name: str
    used: int
    capacity: int
    version: int

    def __post_init__(self) -> None:
        if not 0 <= self.used <= self.capacity:
            raise BadInputError(f"{self.name} uses {self.used} of {self.capacity}", field="used")


@dataclass(frozen=True)
class Move:
    """All rollouts under way on `source` go on at `target`; `source` is free for new weights."""

    source: str
    target: str
    used: int


def repack(replicas: Sequence[ActorLoad]) -> list[Move]:
    """Empty as many replicas as the others of the same version have room for: the emptiest first, each onto the fullest
    that still holds it. A rollout never changes its version, and one that was moved is not moved again."""
    state = {replica.name: replica for replica in replicas}
    if len(state) != len(replicas):
        raise BadInputError("two replicas have one name", field="name")
    moves: list[Move] = []
    for source in sorted((r for r in replicas if r.used), key=lambda r: (r.used, r.name)):
        if any(move.target == source.name for move in moves):
            continue
        fitting = [
            other
            for other in state.values()
            if other.name != source.name
            and other.version == source.version
            and other.used
            and other.used + source.used <= other.capacity
        ]
        if fitting:
            target = max(fitting, key=lambda r: (r.used, r.name))
            state[target.name] = replace(target, used=target.used + source.used)
            state[source.name] = replace(source, used=0)
            moves.append(Move(source.name, target.name, source.used))
    return moves
