"""What a reward model makes of each label of the pool without having been trained on it.

Covers: one model a fold of comparisons, trained on gold and on what the answers to the others say, weighted by what
they are worth; their common temperature, on gold. Leaves out: what is done with it (`choosing`, `source_pass`).
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from assay.browsing.candidates import Candidate, candidates_by_id
from assay.data.snapshots import Selection
from assay.domain import PreferencePair
from assay.errors import BadInputError
from assay.ids import fraction
from assay.models.calibration import Calibration
from assay.workspace import Workspace
from assay_pipelines.curation.loop.held_out import Refit, gold_candidates
from assay_pipelines.curation.loop.reward_models import LoopModel, preferring
from assay_pipelines.curation.reliability.estimates import Reliabilities
from assay_pipelines.curation.reliability.evidence import PairEvidence, evidence_of, id_pages
from assay_pipelines.curation.reliability.label_quality import FOLDS, fold_of

PAGE = 4_000
#: Penalty of the probes that read the pool. Cross-validation on its labels prefers a weaker one, for what sources do
#: wrong in common can be predicted as well (docs/curation/study.md); the temperature on gold sets the scale.
READING_L2 = 3.0
MOST_FITTED = 20_000  #: labelled pairs that are fitted, drawn by hash; each fold has the gold beside


class PairModel(Protocol):
    """Reads pairs that it was not trained on."""

    def log_odds(self, candidates: Sequence[Candidate]) -> dict[str, float]:
        """comparison id -> log odds of A against B, of those that can be scored."""


@dataclass(frozen=True)
class CrossFitted:
    """`models`: by fold, each trained without it."""

    models: Sequence[LoopModel]

    def log_odds(self, candidates: Sequence[Candidate]) -> dict[str, float]:
        read: dict[str, float] = {}
        for fold, model in enumerate(self.models):
            read |= model.log_odds([c for c in candidates if fold_of(c.comparison_id) == fold])
        return read


def cross_fitted(
    workspace: Workspace, selection: Selection, refit: Refit, worth: Reliabilities, judges: Sequence[str] = ()
) -> CrossFitted | None:
    """`judges`: annotator ids whose answers count beside the sources'. None where the models rank gold no better than
    chance: they would add nothing."""
    from assay_rm_training.calibration.fitting import fit_temperature

    gold = gold_candidates(workspace, labelled=False)
    pairs = [preferring(c, c.label) for c in gold] + _weighted(workspace, selection, worth, judges)
    models, margins = [], []
    for fold in range(FOLDS):
        model = refit([pair for pair in pairs if fold_of(pair.comparison_id) != fold])
        held_out = [preferring(c, c.label) for c in gold if fold_of(c.comparison_id) == fold]
        margins += [m[0] - m[1] for m in model.margins(held_out) if m is not None]
        models.append(model)
    try:
        calibration = Calibration(fit_temperature(margins), 0.0, fitted_on="gold, held out", pairs=len(margins))
    except BadInputError:
        return None
    return CrossFitted([replace(model, calibration=calibration) for model in models])


def _weighted(
    workspace: Workspace, selection: Selection, worth: Reliabilities, judges: Sequence[str]
) -> list[PreferencePair]:
    """What the answers say of the selection, where they say anything."""
    drawn: list[tuple[float, PairEvidence]] = []
    for ids in id_pages(workspace, selection, PAGE):
        with workspace.store.unit() as db:
            evidence = evidence_of(db, ids, worth, judges)
        drawn += [(fraction("fitted", e.comparison_id), e) for e in evidence if e.label is not None]
        drawn = heapq.nsmallest(MOST_FITTED, drawn, key=lambda entry: entry[0])
    by_id = {evidence.comparison_id: evidence for _, evidence in drawn}
    return [
        replace(preferring(c, by_id[c.comparison_id].label), weight=2 * by_id[c.comparison_id].p_right - 1)
        for c in candidates_by_id(workspace, sorted(by_id))
    ]
