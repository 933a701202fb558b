"""The pairs of responses of one step that may be labelled, and what is known of their responses.

Covers: the arrays that selectors read, differences over pairs, the most urgent of them. Leaves out:
selectors (`kind`), making the pairs out of rollouts.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from assay_serving.engines.heads import Posterior

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Candidates:
    """n pairs of r responses; k members of an ensemble, H features. A reward that failed is NaN."""

    first: Ints  #: [n] row of a response
    second: Ints  #: [n]
    prompt: Ints  #: [n] which prompt the pair belongs to
    reward: Floats  #: [r] the reward trained on
    members: Floats | None = None  #: [r, k] rewards of the ensemble's members
    other: Floats | None = None  #: [r] a second reward
    features: Floats | None = None  #: [r, H] of the frozen backbone
    logp: Floats | None = None  #: [r] log-probability of the response under the policy that drew it
    logp_ref: Floats | None = None  #: [r] under the reference policy
    posterior: Posterior | None = None  #: of the head on the features

    def __len__(self) -> int:
        return len(self.first)

    def difference(self, values: Floats) -> Floats:
        """First less second, of values by response: [r] -> [n], [r, k] -> [n, k]."""
        return np.asarray(values[self.first] - values[self.second], dtype=np.float64)


def most_urgent(urgency: Floats, count: int, rng: np.random.Generator) -> list[int]:
    """At most `count` pairs, the highest urgency [n] first, equals in random order; NaN is never chosen."""
    order = np.lexsort((rng.random(len(urgency)), -urgency))
    return [int(pair) for pair in order[np.isfinite(urgency[order])][: max(count, 0)]]
