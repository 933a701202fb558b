"""New labels, by a model of the good sources and gold, for what sources at chance have labelled.

Covers: the comparisons that `source_pass` discarded because their sources tell nothing, each with the model's side, its
probability as reason and worth, the model and the labels it overrules as basis; the check on gold the model was not
trained on. Leaves out: training that model (`assay train probe --data` on a snapshot of gold and silver).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.browsing.candidates import Candidate, Label, candidates_by_id
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.store.records import Decision, Evidence
from assay.workspace import Workspace
from assay_pipelines.curation.loop.held_out import Refit, gold_probabilities
from assay_pipelines.curation.loop.labelling import insert_undisturbed
from assay_pipelines.curation.loop.pass_config import RelabelConfig
from assay_pipelines.curation.loop.reward_models import LoopModel
from assay_pipelines.curation.reliability.evidence import CHANCE
from assay_pipelines.curation.reliability.label_quality import (
    LabelQuality,
    Outcome,
    label_quality,
    outcome,
    refuse_worse,
)

PAGE = 512
RULE = "relabelled"


@dataclass
class RelabelReport:
    """Counts of comparisons. `against`: relabelled with the other side than the source's. `unsure`, `unscored`: left
    discarded. `overtaken`: decided otherwise meanwhile, which stands."""

    seen: int = 0
    relabelled: int = 0
    against: int = 0
    unsure: int = 0
    unscored: int = 0
    overtaken: int = 0
    dry_run: bool = False
    quality: dict[str, Any] = field(default_factory=dict)
    quality_text: str = ""


def run_relabelling(
    workspace: Workspace,
    config: RelabelConfig,
    model: LoopModel,
    run_id: str,
    *,
    sources: Sequence[str] = (),
    refit: Refit | None = None,
    force: bool = False,
    dry_run: bool = False,
    advance: Advance = silent,
) -> RelabelReport:
    """Relabel what `source_at_chance` holds, of all sources or of some. `refit`: trains the model again without a fold
    of gold, where it was trained on gold.

    Raises BadInputError where nothing is to be relabelled and, unless `force`, where the model is right less often on
    gold than the sources it overrules.
    """
    with workspace.store.unit() as db:
        rows = db.execute(
            """SELECT comparison_id FROM current_decisions d WHERE rule = $rule AND (len($sources) = 0 OR EXISTS (
                   SELECT 1 FROM origins o WHERE o.comparison_id = d.comparison_id
                   AND list_contains($sources, o.source)))
               ORDER BY comparison_id""",
            {"rule": CHANCE, "sources": list(sources)},
        ).fetchall()
    todo = [row[0] for row in rows]
    if not todo:
        raise BadInputError("no label of a source at chance to replace: assay curate sources finds them")
    quality = _quality(workspace, config, model, refit, todo)
    report = RelabelReport(dry_run=dry_run, quality=quality.to_dict(), quality_text=quality.text)
    refuse_worse(quality, "relabelling", force=force or dry_run)
    for start in range(0, len(todo), PAGE):
        page = todo[start : start + PAGE]
        candidates = [c for c in candidates_by_id(workspace, page) if c.pool == "discarded"]
        p_a = model.p_a(candidates)
        sure = [c for c in candidates if _sure(p_a.get(c.comparison_id, 0.5), config)]
        decisions = [_decision(c, p_a[c.comparison_id], model) for c in sure]
        overtaken = set() if dry_run else insert_undisturbed(workspace, candidates, decisions, run_id)
        made = [(d, c) for d, c in zip(decisions, sure, strict=True) if d.comparison_id not in overtaken]
        report.seen += len(page)
        report.unscored += len(candidates) - len(p_a)
        report.unsure += len(p_a) - len(sure)
        report.relabelled += len(made)
        report.against += sum(decision.label != candidate.source_label for decision, candidate in made)
        report.overtaken += len(page) - len(candidates) + sum(d.comparison_id in overtaken for d in decisions)
        advance(len(page))
    return report


def _sure(p_a: float, config: RelabelConfig) -> bool:
    return p_a != 0.5 and max(p_a, 1 - p_a) >= config.least


def _decision(candidate: Candidate, p_a: float, model: LoopModel) -> Decision:
    label: Label = "A" if p_a > 0.5 else "B"
    p = max(p_a, 1 - p_a)
    info = model.scorer.info
    basis = [Evidence("scored by", info.version), *(Evidence("checked", j) for j in candidate.source_judgments)]
    reason = (
        f"{info.name}@{info.version} gives {label} p = {p:.3f}; the source, no better than chance on gold, said "
        f"{candidate.source_label or 'nothing clear'}"
    )
    return Decision(candidate.comparison_id, "silver", label, RULE, reason, basis=basis, weight=2 * p - 1)


def _quality(
    workspace: Workspace, config: RelabelConfig, model: LoopModel, refit: Refit | None, todo: Sequence[str]
) -> LabelQuality:
    """On gold of the sources that would be relabelled; the model has not seen what it is asked."""
    with workspace.store.unit() as db:
        sources = db.execute(
            "SELECT DISTINCT source FROM origins JOIN (SELECT unnest($ids) AS comparison_id) USING (comparison_id)",
            {"ids": list(todo)},
        ).fetchall()
    outcomes: list[Outcome] = []
    for candidate, p in gold_probabilities(workspace, model, refit, sources=tuple(row[0] for row in sources)):
        label, source = candidate.label, candidate.source_label
        if label in ("A", "B") and source in ("A", "B"):
            p_a = p if label == "A" else 1 - p
            outcomes.append(outcome(label, source, _decision(candidate, p_a, model) if _sure(p_a, config) else None))
    return label_quality(outcomes)
