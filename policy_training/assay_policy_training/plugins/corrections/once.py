"""Refuses recipes that correct for the sampler's distribution more than once.

An objective that divides by mu itself (AIPO, PPO in bypass mode) under importance weights counts the mismatch twice,
and so do two sets of weights. Rejections without weights go with every objective of tokens or of single rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.errors import BadInputError


def check_single_correction(objective: object, corrections: Sequence[object]) -> None:
    """Raises BadInputError for a double correction. Read: an objective's `corrects_behaviour`, a correction's `weighs`
    (a correction that does not say is taken to weigh)."""
    weighing = [type(plugin).__name__ for plugin in corrections if getattr(plugin, "weighs", True)]
    if weighing and getattr(objective, "corrects_behaviour", False):
        raise BadInputError(
            f"{type(objective).__name__} already divides by the sampler's probabilities; with {weighing[0]} the "
            "mismatch would be corrected twice",
            field="corrections",
        )
    if len(weighing) > 1:
        raise BadInputError(
            f"{' and '.join(weighing)} would correct the mismatch more than once; keep one", field="corrections"
        )
