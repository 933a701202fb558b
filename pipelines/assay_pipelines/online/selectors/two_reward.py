"""Pairs on which two rewards disagree, of which neither need have members: another model, a verifier, length."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from assay.settings import CheckedSettings, Help
from assay_pipelines.online.selectors.candidates import Candidates, Floats, most_urgent
from assay_pipelines.online.selectors.kind import Pick


def standardised(margins: Floats) -> Floats:
    """Margins [n] in units of their root mean square, which rewards of different scales have in common; NaN stays."""
    scale = float(np.sqrt(np.nanmean(np.square(margins)))) if np.isfinite(margins).any() else 0.0
    return margins / scale if scale > 0 else margins


@dataclass(frozen=True)
class RewardDisagreement(CheckedSettings):
    """The pairs whose two margins, each in units of its root mean square over the candidates, differ most first."""

    by: Annotated[
        Literal["margin", "order"],
        Help("margin: difference of the margins. order: the clearest contradictions, by the product of the margins."),
    ] = "margin"

    needs: ClassVar[frozenset[str]] = frozenset({"other"})

    def choose(self, candidates: Candidates, count: int, rng: np.random.Generator) -> list[Pick]:
        assert candidates.other is not None
        trained = standardised(candidates.difference(candidates.reward))
        other = standardised(candidates.difference(candidates.other))
        urgency = np.abs(trained - other) if self.by == "margin" else -trained * other
        return [
            Pick(pair, {"margin": float(trained[pair]), "other_margin": float(other[pair])})
            for pair in most_urgent(urgency, count, rng)
        ]
