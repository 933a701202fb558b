"""The labels that tell most of the reward: D-optimal batches by the posterior, or by the members' covariance.

Source: greedy log det, within 1 - 1/e of the best batch because log det is submodular (Nemhauser, Wolsey and Fisher
1978, recalled); with draws of the posterior in preference-based RL, Schlaginhaufen et al., arXiv 2506.09508 (abstract
read). The gain of a first label is, to the second order, its mutual information with the reward (BALD, Houlsby et al.,
arXiv 1112.5745, recalled), which by itself buys the same label several times in a batch.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from assay.settings import CheckedSettings, Help
from assay_pipelines.online.selectors.belief import Source, belief_of, needs_of
from assay_pipelines.online.selectors.candidates import Candidates, Floats, most_urgent
from assay_pipelines.online.selectors.kind import Pick
from assay_rm_training.calibration.measures import sigmoid


@dataclass(frozen=True)
class InformationGain(CheckedSettings):
    """Greedily the pair that takes most off the entropy of what is believed, given the pairs before it."""

    by: Annotated[Source, Help("What is believed: the posterior, or a normal of the members' covariance.")] = (
        "posterior"
    )

    @property
    def needs(self) -> frozenset[str]:
        return needs_of(self.by)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        belief = belief_of(candidates, self.by)
        return greedy_design(candidates.difference(belief.deviations), candidates.difference(belief.mean), count, rng)


def greedy_design(deviations: Floats, margin: Floats, count: int, rng: np.random.Generator) -> list[Pick]:
    """Pairs [n, m], where x_i . x_j is the covariance of two margins, with mean margins [n].

    A label weighs w = p (1 - p), its information under Bradley-Terry. At x it takes log(1 + w |x|^2) / 2 nats off the
    entropy, and w x x^T / (1 + w |x|^2) off the identity between the x that are left.
    """
    remaining = deviations.copy()
    chance = sigmoid(margin)
    weight = chance * (1 - chance)
    picks: list[Pick] = []
    while len(picks) < count:
        gain = 0.5 * np.log1p(weight * np.square(remaining).sum(axis=1))
        gain[[pick.pair for pick in picks]] = np.nan
        best = most_urgent(gain, 1, rng)
        if not best:
            break
        picks.append(Pick(best[0], {"gain": float(gain[best[0]])}))
        direction = remaining[best[0]].copy()
        length = float(direction @ direction)
        if length > 0:
            shrink = (1 - 1 / np.sqrt(1 + weight[best[0]] * length)) / length
            remaining -= np.outer(remaining @ direction, shrink * direction)
    return picks
