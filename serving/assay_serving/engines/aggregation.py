"""One reward of the rewards of an ensemble's members, and their spread.

Covers: the mean, worst case, less variance or deviation, the KL-robust family. Leaves out: bringing members to one
scale (`ensemble`), where they come from.

Sources: Coste et al., arXiv 2310.02743 (mean, min = WCO, mean - weight * variance = UWO; the official code takes the
population variance for best-of-n and the unbiased one for PPO, so the convention is a setting here); the KL-robust
family -beta ln mean exp(-R / beta), arXiv 2606.09073: the mean for large beta, the minimum for small.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Gt, Lt

from assay.settings import CheckedSettings

Floats: TypeAlias = npt.NDArray[np.float64]
Combine = Literal["mean", "min", "uwo", "lower_bound", "kl_robust"]
Variance = Literal["population", "unbiased"]


@dataclass(frozen=True)
class MemberAggregation(CheckedSettings):
    """`weight`: of the variance in `uwo` (0.5 for best-of-n, 0.1 for PPO in the paper), of the deviation in
    `lower_bound` (mean - weight * std). `beta`: of `kl_robust`. `variance`: divides by k ("population") or k - 1
    ("unbiased"), in `uwo` and in every score's uncertainty."""

    combine: Combine = "mean"
    weight: Annotated[float, Ge(0), Lt(math.inf)] = 0.5
    beta: Annotated[float, Gt(0), Lt(math.inf)] = 1.0
    variance: Variance = "population"

    def combined(self, rewards: Floats) -> Floats:
        """One reward an item [B] of the members' rewards [B, k], already on one scale."""
        mean: Floats = rewards.mean(axis=1)
        if self.combine == "min":
            return np.asarray(rewards.min(axis=1))
        if self.combine == "uwo":
            return np.asarray(mean - self.weight * self.spread(rewards) ** 2)
        if self.combine == "lower_bound":
            return np.asarray(mean - self.weight * self.spread(rewards))
        if self.combine == "kl_robust":
            low = rewards.min(axis=1, keepdims=True)  # factored out: no exponent above 0
            return np.asarray(low[:, 0] - self.beta * np.log(np.exp(-(rewards - low) / self.beta).mean(axis=1)))
        return mean

    def spread(self, rewards: Floats) -> Floats:
        """Standard deviation over members [B] of rewards [B, k], by the convention of `variance`."""
        return np.asarray(rewards.std(axis=1, ddof=1 if self.variance == "unbiased" else 0))
