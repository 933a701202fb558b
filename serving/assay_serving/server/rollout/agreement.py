"""How far two models agree on the same items, for the decision whether one replaces the other.

Covers: the latest pairs of scores, order within prompts, rank correlations, distributions, a common scale. Leaves out:
the source of the pairs (`shadow`), the decision (`lifecycle`).

Rewards are comparable within one prompt only, so the order within prompts is the most reliable figure; statistics over
all items also reflect how hard the prompts are, on which two models agree easily.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError
from assay.statistics.intervals import Interval, share_interval
from assay.statistics.rank_correlation import kendall_tau_b, spearman
from assay_serving.server.metrics.drift import Drift, Floats, drift

PAIRS_KEPT = 4096


@dataclass(frozen=True)
class OrderAgreement:
    """Pairs of responses to one prompt on which the old model has an order, and how often the new one has the same."""

    pairs: int
    prompts: int
    agreement: float  #: share of the pairs in the same order, a tie of the new model counting half
    interval: Interval | None  #: of the agreement, by prompts; None: undetermined, too few of them


@dataclass(frozen=True)
class ModelAgreement:
    """Two models' scores [N] of the same items. None: not defined for these items."""

    items: int
    prompts: int
    old_mean: float
    old_std: float
    new_mean: float
    new_std: float
    scale: float | None  #: scale * new + shift has the old model's mean and deviation (mean-sigma equating)
    shift: float | None
    difference: float | None  #: mean |old - (scale * new + shift)|, in units of the old reward
    spearman: float | None
    kendall: float | None
    spearman_within: float | None  #: mean over the prompts that the old model does not score all alike
    kendall_within: float | None
    order: OrderAgreement | None
    drift: Drift  #: of new scores from old ones, as they are
    drift_aligned: Drift | None  #: after bringing the new ones to the old scale

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class PairedScores:
    """The latest scores by both models; an item that is scored again counts once.

    `item`: an identity of the item; `group`: of what makes rewards comparable, its prompt.
    """

    def __init__(self, capacity: int = PAIRS_KEPT) -> None:
        self._capacity = capacity
        self._pairs: OrderedDict[bytes, tuple[bytes, float, float]] = OrderedDict()
        self.total = 0  #: items, including evicted ones

    def add(self, item: bytes, group: bytes, old: float, new: float) -> None:
        self.total += item not in self._pairs
        self._pairs[item] = (group, old, new)
        if len(self._pairs) > self._capacity:
            self._pairs.popitem(last=False)

    def columns(self) -> tuple[list[bytes], Floats, Floats]:
        """Groups, old scores, new scores: a copy, to be compared off the event loop."""
        pairs = list(self._pairs.values())
        old, new = (np.array([pair[side] for pair in pairs], dtype=float) for side in (1, 2))
        return [group for group, _, _ in pairs], old, new


def agreement(groups: list[bytes], old: Floats, new: Floats) -> ModelAgreement:
    """Raises BadInputError where there is no item, or the three are not of one length."""
    if not groups or not len(groups) == len(old) == len(new):
        raise BadInputError("agreement needs items, and two scores and a group for each")
    both_vary = len(old) > 1 and bool(old.std() > 0) and bool(new.std() > 0)
    scale = float(old.std() / new.std()) if both_vary else None
    shift = float(old.mean() - scale * new.mean()) if scale is not None else None
    aligned = scale * new + shift if scale is not None and shift is not None else None
    ranks = [(kendall_tau_b(a, b), spearman(a, b)) for a, b in _prompts(groups, old, new) if a.std() > 0]
    return ModelAgreement(
        items=len(old),
        prompts=len(set(groups)),
        old_mean=float(old.mean()),
        old_std=float(old.std()),
        new_mean=float(new.mean()),
        new_std=float(new.std()),
        scale=scale,
        shift=shift,
        difference=float(np.abs(old - aligned).mean()) if aligned is not None else None,
        spearman=spearman(old, new) if len(old) > 1 else None,
        kendall=kendall_tau_b(old, new) if len(old) > 1 else None,
        spearman_within=float(np.mean([rho for _, rho in ranks])) if ranks else None,
        kendall_within=float(np.mean([tau for tau, _ in ranks])) if ranks else None,
        order=order_agreement(groups, old, new),
        drift=drift(old, new),
        drift_aligned=drift(old, aligned) if aligned is not None else None,
    )


def order_agreement(groups: list[bytes], old: Floats, new: Floats) -> OrderAgreement | None:
    """None where no prompt has two responses that the old model tells apart."""
    credits: list[npt.NDArray[np.float64]] = []
    for a, b in _prompts(groups, old, new):
        first, second = np.triu_indices(len(a), 1)
        by_old, by_new = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
        ordered = by_old != 0
        if ordered.any():
            credits.append((1 + by_old[ordered] * by_new[ordered]) / 2)
    if not credits:
        return None
    shares = np.concatenate(credits)
    prompts = [str(index) for index, of_prompt in enumerate(credits) for _ in of_prompt]
    return OrderAgreement(len(shares), len(credits), float(shares.mean()), share_interval(shares.tolist(), prompts))


def _prompts(groups: list[bytes], old: Floats, new: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Both models' scores of each prompt that has at least two."""
    _, member = np.unique(np.array(groups, dtype=object), return_inverse=True)
    by_prompt = np.argsort(member, kind="stable")
    for places in np.split(by_prompt, np.flatnonzero(np.diff(member[by_prompt])) + 1):
        if len(places) > 1:
            yield old[places], new[places]
