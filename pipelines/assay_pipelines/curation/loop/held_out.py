"""What a model says of gold that it was not trained on: as it is, or trained again without each fold.

Covers: which gold a model has seen, by the snapshot in its description; the refits. Leaves out: how a refit trains.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from assay.browsing.candidates import Candidate, candidates_by_id
from assay.data.snapshots import Selection
from assay.domain import PreferencePair
from assay.workspace import Workspace
from assay_pipelines.curation.loop.reward_models import LoopModel, preferring
from assay_pipelines.curation.reliability.label_quality import folds_of

if TYPE_CHECKING:
    from assay.models.spec import RewardModelSpec

#: The model trained anew, on these pairs alone.
Refit = Callable[[Sequence[PreferencePair]], LoopModel]


def gold_probabilities(
    workspace: Workspace, model: LoopModel, refit: Refit | None, *, sources: tuple[str, ...] = ()
) -> list[tuple[Candidate, float]]:
    """(gold comparison, P(its gold label)) of gold that has an A/B label of its source; unscored ones are left out.

    `refit`: for a model that was trained on gold: each fold is scored by one trained on gold without it. None: the
    model has seen none of it.
    """
    gold = gold_candidates(workspace, sources)
    if refit is None:
        return _scored(model, gold)
    by_id = {candidate.comparison_id: candidate for candidate in gold}
    everything = gold_candidates(workspace, (), labelled=False)
    scored = []
    for fold in folds_of(list(by_id)):
        without = set(fold)
        training = [preferring(c, c.label) for c in everything if c.comparison_id not in without]
        scored += _scored(refit(training), [by_id[comparison] for comparison in fold])
    return scored


def gold_candidates(workspace: Workspace, sources: tuple[str, ...] = (), *, labelled: bool = True) -> list[Candidate]:
    """Gold with a side. `labelled`: with an A/B label of its sources."""
    condition, values = Selection(("gold",), sources).where()
    with workspace.store.unit() as db:
        rows = db.execute(
            f"SELECT p.comparison_id FROM pools p WHERE {condition} AND p.label IN ('A', 'B') ORDER BY 1", values
        ).fetchall()
    candidates = candidates_by_id(workspace, [row[0] for row in rows])
    return [c for c in candidates if not labelled or c.source_label in ("A", "B")]


def saw_gold(workspace: Workspace, spec: "RewardModelSpec") -> bool:
    """Whether the model was trained on a snapshot of this workspace that holds what is gold now."""
    if spec.snapshot is None:
        return False
    with workspace.store.unit() as db:
        row = db.execute(
            """SELECT count(*) FROM snapshots s JOIN snapshot_items i USING (snapshot_id)
               JOIN current_decisions d USING (comparison_id)
               WHERE (s.name = $snapshot OR s.snapshot_id = $snapshot) AND d.pool = 'gold'""",
            {"snapshot": spec.snapshot},
        ).fetchone()
    return bool(row and row[0])


def probe_refit(path: str, device: str, *, l2: tuple[float, ...] = ()) -> Refit:
    """A linear probe on the frozen backbone of the model at `path`, for a model that is one. `l2`: the penalties tried,
    those of a probe by default."""
    from assay_pipelines.curation.loop.reward_models import UNCALIBRATED
    from assay_rm_training.methods.hidden_states import FeatureCache, FrozenBackbone
    from assay_rm_training.methods.probe import ProbeConfig, ProbeScorer, train_probe

    cache = FeatureCache(FrozenBackbone(path, device=device))

    def refit(pairs: Sequence[PreferencePair]) -> LoopModel:
        probe = train_probe(cache, pairs, ProbeConfig(l2=l2) if l2 else ProbeConfig())
        return LoopModel(ProbeScorer(cache, probe, name="refit", version="cross-validation"), UNCALIBRATED)

    return refit


def _scored(model: LoopModel, candidates: Sequence[Candidate]) -> list[tuple[Candidate, float]]:
    probabilities = model.probabilities([preferring(c, c.label) for c in candidates])
    return [(c, p) for c, p in zip(candidates, probabilities, strict=True) if p is not None]
