"""How far drawing, rewarding and training of a run overlap (S14), as a recipe says it.

Leaves out: doing it (`drawing`: rewards beside generation; `ahead`: rollouts of later steps beside training).
"""

from __future__ import annotations

from dataclasses import dataclass

from assay.errors import BadInputError


@dataclass(frozen=True)
class Asynchrony:
    """`lag`: a step trains on rollouts of the weights of `lag` steps before it; 0 = its own weights.

    The lag is fixed, so a run is the same in every repetition, and it bounds the staleness: step s > lag trains on what
    the weights that step s - lag started from drew while the steps between were trained. `chunks`: in how many portions
    the rewards of a draw are asked for, each while the sampler goes on; it changes no number.
    """

    lag: int = 0
    chunks: int = 1

    def __post_init__(self) -> None:
        for name, least in (("lag", 0), ("chunks", 1)):
            if getattr(self, name) < least:
                raise BadInputError(f"must be at least {least}, not {getattr(self, name)}", field=f"asynchrony.{name}")
