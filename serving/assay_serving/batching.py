"""Which sequences go through the model together: batches of similar length within a token budget.

Covers: the plan and its padded share. Leaves out: padding itself (the engine's), what a score is. A score never
depends on the plan; only time and memory do.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.errors import BadInputError

#: Padding tokens that cost less than starting another forward pass: about 2 % of a second on one GPU, and cheaper
#: still to avoid on a CPU, where a pass starts in milliseconds.
PADDING_ALLOWANCE = 256


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


def padded_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """Share of the computed tokens that is padding, 0 (none) to below 1."""
    computed = sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)
    real = sum(lengths[i] for batch in batches for i in batch)
    return 1.0 - real / computed if computed else 0.0
