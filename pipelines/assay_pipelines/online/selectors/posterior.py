"""Posterior sampling: the best response by one head drawn from the belief, against the best by a second draw.

Source: preference-based RL by randomisation (Wu and Sun, "Making RL with Preference-based Feedback Efficient via
Randomization", arXiv 2310.14554; abstract and reviews read): rewards are drawn from their posterior, and a label is
bought only where two draws can differ much. Ours: both draws choose among responses that are there already; where they
choose the same one, the second takes the best of the others; of a budget, the pairs on which draws differ most.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from assay.settings import CheckedSettings, Help
from assay_pipelines.online.selectors.belief import Belief, Source, belief_of, margins, needs_of
from assay_pipelines.online.selectors.candidates import Candidates, Ints
from assay_pipelines.online.selectors.kind import Pick
from assay_pipelines.online.selectors.turns import by_turns


@dataclass(frozen=True)
class PosteriorDraws(CheckedSettings):
    """One pair of each prompt by two draws of its own, the pair on which two draws are expected to differ most first;
    then a second pair of each."""

    by: Annotated[Source, Help("What is drawn: heads from the posterior, or members of the ensemble.")] = "posterior"

    @property
    def needs(self) -> frozenset[str]:
        return needs_of(self.by)

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        belief = belief_of(candidates, self.by)
        margin, spread = margins(candidates, belief)
        gap = 2 * spread / math.sqrt(math.pi)  # E |m - m'| of independent normal m, m' of that deviation

        def pick(pairs: Ints) -> Pick:
            pair = _by_two_draws(candidates, pairs, belief, rng)
            return Pick(pair, {"gap": float(gap[pair]), "margin": float(margin[pair])})

        return by_turns(candidates, np.isfinite(margin + gap), count, pick, "gap")


def _by_two_draws(candidates: Candidates, pairs: Ints, belief: Belief, rng: np.random.Generator) -> int:
    """Of one prompt's pairs: the best response by a draw, with the partner that a second draw puts first."""
    first, second = candidates.first[pairs], candidates.second[pairs]
    rows = np.unique(np.concatenate([first, second]))
    best = rows[np.argmax(belief.draw(rows, rng))]
    of_best = (first == best) | (second == best)
    partners = np.where(first == best, second, first)[of_best]
    return int(pairs[of_best][np.argmax(belief.draw(partners, rng))])
