"""Prompts that take turns: one pair of each, the highest value first, before a second pair of any."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from assay_pipelines.online.selectors.candidates import Candidates, Ints
from assay_pipelines.online.selectors.kind import Pick


def by_turns(
    candidates: Candidates,
    usable: npt.NDArray[np.bool_],
    count: int,
    choose: Callable[[Ints], Pick],
    value: str,
) -> list[Pick]:
    """At most `count` picks: in each round `choose` picks one of every prompt's usable pairs that are left, and the
    round's picks are ordered by their reason `value`."""
    pairs = np.flatnonzero(usable)
    queues = [pairs[candidates.prompt[pairs] == prompt] for prompt in np.unique(candidates.prompt[pairs])]
    picks: list[Pick] = []
    while queues and len(picks) < count:
        turn = [choose(queue) for queue in queues]
        queues = [queue[queue != pick.pair] for queue, pick in zip(queues, turn, strict=True) if len(queue) > 1]
        picks += sorted(turn, key=lambda pick: -pick.why[value])
    return picks[: max(count, 0)]
