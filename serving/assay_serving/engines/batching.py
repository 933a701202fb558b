"""Batches within a token budget: sequences with a common beginning in groups, or padded rows of similar length.

Covers: groups of sequences with a common beginning, for models that compute it once (`plan_groups`); padded
batches of similar length for the others (`plan_batches`). Leaves out: the pass itself, what a score is. A score never
depends on the plan; only time and memory do.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.models.attention.packing import Tokens

#: Padding tokens that cost less than starting another forward pass: about 2 % of a second on one GPU, and cheaper
#: still to avoid on a CPU, where a pass starts in milliseconds.
PADDING_ALLOWANCE = 256
#: Positions that a row must save to join a group: below that its own attention costs more than it saves.
WORTH_SHARING = 16


def plan_batches(
    lengths: Sequence[int], token_budget: int, *, padding_allowance: int = PADDING_ALLOWANCE
) -> list[list[int]]:
    """Indices of `lengths` (tokens) in batches, longest first; every index exactly once.

    A batch is cut where rows x longest row would pass `token_budget`, or where its padding would pass
    `padding_allowance` tokens. A sequence longer than the budget is a batch of its own. Deterministic: equal
    lengths keep their order. Longest first, so that a batch too large for the memory fails at once.
    """
    if token_budget < 1:
        raise BadInputError(f"must be positive, not {token_budget}", field="token_budget")
    batches: list[list[int]] = []
    longest = padding = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        gap = longest - lengths[index]
        full = not batches or (len(batches[-1]) + 1) * longest > token_budget
        if full or padding + gap > padding_allowance:
            batches.append([])
            longest, padding, gap = lengths[index], 0, 0
        batches[-1].append(index)
        padding += gap
    return batches


def plan_groups(
    rows: Sequence[npt.ArrayLike], token_budget: int, *, preferred: int | None = None
) -> list[list[list[int]]]:
    """Forward passes, each a list of groups, each a list of indices of `rows` (token ids) that begin alike.

    Every index once. Rows are grouped by their tokens, wherever they stand in `rows`; a row joins a group where that
    saves positions. A pass computes at most `token_budget` positions, common beginnings counted once; a group beyond
    it is cut, a single row beyond it goes alone. Passes stay within `preferred` positions (default: the budget) where
    that is cheap: only a group whose common beginning is a tenth of that or more is not cut for it. Deterministic. The
    costliest groups come first, so that a pass too large for the memory fails at once.
    """
    if token_budget < 1:
        raise BadInputError(f"must be positive, not {token_budget}", field="token_budget")
    size = min(preferred or token_budget, token_budget)
    tokens = [np.asarray(row, dtype=np.int32) for row in rows]
    groups = sorted(_alike(tokens, token_budget, size), key=lambda group: (-group[1], group[0][0]))
    passes: list[list[list[int]]] = []
    used = 0
    for members, cost in groups:
        if not passes or used + cost > size:
            passes.append([])
            used = 0
        passes[-1].append(members)
        used += cost
    return passes


def _alike(tokens: Sequence[Tokens], budget: int, size: int) -> Iterator[tuple[list[int], int]]:
    """Groups (indices in ascending order, positions to compute) of rows that begin alike."""
    # Big-endian bytes sort as the tokens do, so that neighbours share the longest beginnings.
    order = sorted(range(len(tokens)), key=lambda i: (tokens[i].astype(">i4").tobytes(), i))
    members: list[int] = []
    common = total = 0
    for index in order:
        row = tokens[index]
        shared = _common(tokens[members[-1]], row, common) if members else 0
        saved = len(members) * shared
        worth = saved - (len(members) - 1) * common >= WORTH_SHARING
        most = budget if 10 * shared >= size else size
        if not (members and worth and total + len(row) - saved <= most):
            if members:
                yield sorted(members), total - (len(members) - 1) * common
            members, total, shared = [], 0, len(row)
        members.append(index)
        common, total = shared, total + len(row)
    if members:
        yield sorted(members), total - (len(members) - 1) * common


def _common(first: Tokens, second: Tokens, most: int) -> int:
    """Tokens that both begin with, at most `most`, and short of the last of either: it is a branch of its own."""
    limit = min(most, len(first) - 1, len(second) - 1)
    differ = np.flatnonzero(first[:limit] != second[:limit])
    return int(differ[0]) if len(differ) else limit
