"""Preference pairs as tokens: encoded once, counted where they cannot be used, cut into batches by a seed.

Covers: encoding both sides with the one renderer, the reasons a pair is left out, the batches of an epoch as a
pure function of (seed, epoch), micro-batches of similar length under a token budget. Leaves out: reading pairs
(`assay.pairs`), padding and the forward pass (`pair_forward.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from assay import ids
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.models.renderer import Encoded, Renderer
from assay.progress import Advance, silent

Tokens = npt.NDArray[np.int32]


class EncodedPair(NamedTuple):
    """Token ids of both conversations; `margin` is 0 where the label carries none."""

    chosen: Tokens
    rejected: Tokens
    margin: float
    weight: float

    common: int  #: tokens that both sides begin with; at least one token of each side is beyond them

    @property
    def joint_length(self) -> int:
        """Tokens of the pair with its common beginning counted once."""
        return len(self.chosen) + len(self.rejected) - self.common


@dataclass(frozen=True)
class PairSet:
    """Usable pairs, and how many were left out for which reason. `truncated`: pairs with a side that lost old turns."""

    pairs: list[EncodedPair]
    left_out: dict[str, int]
    truncated: int
    digest: str  #: of the given pairs in their order; a resumed run checks it
    first_fault: str = field(default="", compare=False)

    def __len__(self) -> int:
        return len(self.pairs)


def encode_pairs(pairs: Sequence[PreferencePair], renderer: Renderer, *, advance: Advance = silent) -> PairSet:
    """Encode every pair. A pair is left out, and counted, where a side does not fit or cannot be rendered, where the
    cut made both sides equal, or where its weight is not positive. Raises BadInputError when none remains.
    """
    usable: list[EncodedPair] = []
    left_out: Counter[str] = Counter()
    truncated = 0
    first_fault = ""
    for number, pair in enumerate(pairs, start=1):
        outcome = _encode(pair, renderer)
        if isinstance(outcome, str):
            reason = outcome.partition(": ")[0]
            left_out[reason] += 1
            first_fault = first_fault or f"pair {number}: {outcome}"
        else:
            usable.append(outcome[0])
            truncated += outcome[1]
        advance(1)
    if not usable:
        what = f"none of the {len(pairs)} pairs can be used; {first_fault}" if pairs else "there are no pairs"
        raise BadInputError(what)
    digest = ids.rows_digest((p.comparison_id, p.chosen, p.rejected, p.margin, p.weight) for p in pairs)
    return PairSet(usable, dict(left_out), truncated, digest, first_fault)


def _encode(pair: PreferencePair, renderer: Renderer) -> tuple[EncodedPair, bool] | str:
    """The encoded pair and whether it was cut, or why not: 'reason' or 'reason: detail'."""
    if not pair.weight > 0:
        return f"weight not positive: {pair.weight}"
    sides: list[Encoded] = []
    for name, response in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        try:
            encoded = renderer.encode(pair.prompt, response)
        except BadInputError as error:
            return f"{name} cannot be rendered: {error}"
        if encoded.response_cut:
            return f"{name} does not fit: its response alone passes {renderer.max_length} tokens (max_length)"
        sides.append(encoded)
    if sides[0].ids == sides[1].ids:
        return "both sides are the same tokens"
    chosen, rejected = (np.asarray(side.ids, dtype=np.int32) for side in sides)
    encoded_pair = EncodedPair(chosen, rejected, float(pair.margin or 0.0), pair.weight, _common(chosen, rejected))
    return encoded_pair, any(side.truncated for side in sides)


def _common(chosen: Tokens, rejected: Tokens) -> int:
    """Length of the common beginning, short of the last token of either side, which is where its reward is read."""
    shorter = min(len(chosen), len(rejected)) - 1
    differ = np.flatnonzero(chosen[:shorter] != rejected[:shorter])
    return int(differ[0]) if len(differ) else shorter


def steps_per_epoch(pairs: int, batch_size: int) -> int:
    """The last batch of an epoch may be smaller; no pair is dropped."""
    return -(-pairs // batch_size)


def epoch_batches(pairs: int, batch_size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """Indices of each optimiser step's pairs. Depends on its arguments alone, so a data position is just a step.

    Batches are uniform draws: grouping by length happens inside a batch (`micro_batches`), so that no step sees
    only short or only long pairs.
    """
    order = np.random.default_rng((seed, epoch)).permutation(pairs).tolist()
    return [order[start : start + batch_size] for start in range(0, pairs, batch_size)]


def micro_batches(batch: Sequence[int], costs: Mapping[int, int], token_budget: int) -> list[list[int]]:
    """Cut a batch into forward passes of pairs of similar cost (padded tokens each), the costliest first, so that
    pairs * highest cost <= budget. A pair beyond the budget goes alone.
    """
    parts: list[list[int]] = []
    highest = 0
    for index in sorted(batch, key=lambda i: (-costs[i], i)):
        if not parts or (len(parts[-1]) + 1) * highest > token_budget:
            parts.append([])
            highest = costs[index]
        parts[-1].append(index)
    return parts
