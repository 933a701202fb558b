"""What one step of policy gradient does to the probability of all right answers, by how many answers were sampled.

Covers: BroRL's balance for one softmax state: two terms of what was sampled, which only help, and one of what was not,
which may harm and vanishes as rollouts a prompt grow. Leaves out: more than one state; the trainer itself needs nothing
but a large `group_size` (recipe `brorl`).

Source: arXiv 2510.01180 (secondary; derived again, compared with a finite step in
tests/oracles/policy_training/test_mass_balance.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tabular.decision_process import Array

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Balance:
    """The change of the right answers' probability times samples / step size, and its parts."""

    baseline: float  #: S_R, probability-weighted reward of what was sampled
    right: float  #: A_2, sum of p^2 over sampled right answers
    wrong: float  #: B_2, over sampled wrong ones
    right_unsampled: float  #: U_+
    wrong_unsampled: float  #: U_-
    from_sampled: float
    from_unsampled: float

    @property
    def change(self) -> float:
        return self.from_sampled + self.from_unsampled


def balance(p: Array, correct: Flags, sampled: Flags, *, reward: float = 1.0, penalty: float = -1.0) -> Balance:
    """Of answers with probabilities `p` [n] (sum 1), of which `sampled` were drawn; rewards of right and wrong ones."""
    gains = np.where(correct, reward, penalty) * p
    baseline = float(gains[sampled].sum())
    q = float(p[correct].sum())

    def squares(which: Flags) -> float:
        return float((p[which] ** 2).sum())

    right, wrong = squares(sampled & correct), squares(sampled & ~correct)
    right_unsampled, wrong_unsampled = squares(~sampled & correct), squares(~sampled & ~correct)
    return Balance(
        baseline=baseline,
        right=right,
        wrong=wrong,
        right_unsampled=right_unsampled,
        wrong_unsampled=wrong_unsampled,
        from_sampled=(reward - baseline) * (1 - q) * right + (baseline - penalty) * q * wrong,
        from_unsampled=baseline * (q * wrong_unsampled - (1 - q) * right_unsampled),
    )


def unsampled_squares(p: Array, samples: int) -> float:
    """Expected sum of p^2 over answers that none of `samples` draws hits: sum p^2 (1 - p)^N."""
    return float((p**2 * (1 - p) ** samples).sum())
