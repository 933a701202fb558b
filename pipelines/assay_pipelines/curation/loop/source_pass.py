"""Labels of the pool by the posterior of sources, judges and a reward model, with judges where that leaves most open.

keep      the label that is likelier; its weight is what is sure of it, 2p - 1
reverse   the same, where it is not what the source says
discard   what tells nothing: its sources are no better than chance on gold
leave     what no measured source or judge has answered

Covers: measuring judges on gold, spending judges, deciding, the check on gold before anything is written. Leaves out:
new labels by a model alone (`relabelling`), agreement of reward models (`stage2`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from assay.data.snapshots import Selection
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.store.records import Decision, Evidence, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.loop.choosing import PAGE, choose_for_judges, posteriors
from assay_pipelines.curation.loop.cross_fitted import PairModel, cross_fitted
from assay_pipelines.curation.loop.held_out import Refit
from assay_pipelines.curation.loop.labelling import MEASURED, ask_judges
from assay_pipelines.curation.loop.pass_config import SourcePassConfig
from assay_pipelines.curation.reliability.estimates import reliabilities
from assay_pipelines.curation.reliability.evidence import CHANCE, PairEvidence, id_pages, still_in
from assay_pipelines.curation.reliability.label_quality import (
    LabelQuality,
    Outcome,
    folds_of,
    label_quality,
    outcome,
    refuse_worse,
)
from assay_pipelines.judging.judge import Judge
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.questions import load_questions

KEPT, REVERSED = "source_reliable", "source_reversed"
_GOLD = "SELECT comparison_id, label FROM current_decisions WHERE pool = 'gold' AND label IN ('A', 'B') ORDER BY 1"


@dataclass
class SourcePassReport:
    """Counts of comparisons. `unmeasured`: left alone, nobody who answered has met enough gold; `unlabelled`: nobody
    answered A or B; `overtaken`: decided otherwise meanwhile. `read_by_model`: whether a model's reading of each pair
    counts. `quality`: estimated on gold before the pass."""

    seen: int = 0
    kept: int = 0
    reversed: int = 0
    discarded: int = 0
    unmeasured: int = 0
    unlabelled: int = 0
    overtaken: int = 0
    judged: int = 0
    measured_on: int = 0
    read_by_model: bool = False
    cost: float = 0.0
    stopped: str | None = None
    dry_run: bool = False
    quality: dict[str, Any] = field(default_factory=dict)
    quality_text: str = ""


def run_source_pass(
    workspace: Workspace,
    config: SourcePassConfig,
    selection: Selection,
    run_id: str,
    *,
    judges: Sequence[Judge] = (),
    refit: Refit | None = None,
    model_version: str | None = None,
    spending: Spending | None = None,
    force: bool = False,
    dry_run: bool = False,
    advance: Advance = silent,
) -> SourcePassReport:
    """Decide the comparisons of the selection, page by page. What judges have answered is not asked again. `refit`:
    trains the reward model that reads every pair beside the answers, on pairs without the fold it reads;
    `model_version`: what it begins from.

    Raises BadInputError without gold, where a contradicting model is needed and missing, and, unless `force`, where the
    labels would get worse.
    """
    if config.judged and not judges:
        raise BadInputError("nobody to ask: name judges", field="judges")
    if config.judged and config.spend == "contradiction" and refit is None:
        raise BadInputError("contradictions are a model's: name one", field="model")
    report = SourcePassReport(dry_run=dry_run)
    spending = spending or Spending()
    before = spending.cost
    names = [annotator_of(judge).id for judge in judges]

    def fitted() -> PairModel | None:
        if refit is None:
            return None
        with workspace.store.unit() as db:
            worth = reliabilities(db)
        return cross_fitted(workspace, selection, refit, worth, names)

    quality = gold_quality(workspace, config)
    if not quality.pairs:
        raise BadInputError(
            "no gold pair has a label of its source: verify some first (assay curate verify, assay curate stage1)"
        )
    if (model := fitted()) is not None:
        quality, report.read_by_model = gold_quality(workspace, config, model), True
    report.quality, report.quality_text = quality.to_dict(), quality.text
    refuse_worse(quality, "the pass", force=force or dry_run)
    if judges and not dry_run:
        report.measured_on = _measure(workspace, judges, run_id, spending, report)
    with workspace.store.unit() as db:
        worth = reliabilities(db)
    if judges and config.judged and not dry_run and not report.stopped:
        targets = choose_for_judges(
            workspace, selection, config.judged, config.spend, worth, model=model, seed=config.seed
        )
        questions = load_questions(workspace, [target.comparison_id for target in targets])
        asking = ask_judges(workspace, judges, questions, run_id, spending)
        report.judged, report.stopped = len(targets), asking.stopped or asking.silent
        model = fitted() if not report.stopped else None
    report.cost = spending.cost - before
    if report.stopped:
        return report
    scored_by = [Evidence("scored by", model_version)] if model_version is not None and model is not None else []
    for ids in id_pages(workspace, selection, PAGE):
        answered = posteriors(workspace, ids, worth, names, model)
        decisions = [decision for pair in answered if (decision := _decide(pair, config, scored_by)) is not None]
        reached = len(decisions)
        if not dry_run:
            with workspace.store.unit() as db:  # what was decided otherwise meanwhile has left the selection
                undecided = still_in(db, selection, ids)
                decisions = [d for d in decisions if d.comparison_id in undecided]
                insert_decisions(db, decisions, run_id)
        report.overtaken += reached - len(decisions)
        counts = Counter(decision.rule for decision in decisions)
        report.seen += len(ids)
        report.kept += counts[KEPT]
        report.reversed += counts[REVERSED]
        report.discarded += counts[CHANCE]
        report.unmeasured += len(answered) - reached
        report.unlabelled += len(ids) - len(answered)
        advance(len(ids))
    return report


def gold_quality(workspace: Workspace, config: SourcePassConfig, model: PairModel | None = None) -> LabelQuality:
    """What the pass would make of gold's own labels without judges, the reliabilities from the other folds, the model
    trained on them."""
    with workspace.store.unit() as db:
        gold = dict(db.execute(_GOLD).fetchall())
    outcomes: list[Outcome] = []
    for fold in folds_of(list(gold)):
        with workspace.store.unit() as db:
            worth = reliabilities(db, without=fold)
        outcomes += [
            outcome(gold[pair.comparison_id], pair.source_label, _decide(pair, config))
            for pair in posteriors(workspace, fold, worth, (), model)
            if pair.source_label is not None
        ]
    return label_quality(outcomes)


def _decide(pair: PairEvidence, config: SourcePassConfig, scored_by: Sequence[Evidence] = ()) -> Decision | None:
    """None where nobody who answered has met enough gold."""
    if not pair.measured:
        return None
    read = scored_by if pair.model_log_odds is not None else ()
    basis = [*(Evidence("counted", answer.judgment_id) for answer in pair.answers), *read]
    label = _whole_label(pair, config.least) if config.use == "drop" else pair.label
    if label is None:
        reason = f"tells nothing: {pair.text}"
        return Decision(pair.comparison_id, "discarded", pair.source_label, CHANCE, reason, basis=basis)
    against = pair.source_label is not None and label != pair.source_label
    p = pair.p_right
    return Decision(
        pair.comparison_id,
        "silver",
        label,
        REVERSED if against else KEPT,
        f"P({label}) = {p:.3f}: {pair.text}",
        basis=basis,
        weight=2 * p - 1 if config.use == "weights" else None,
        preference=p if config.use == "soft" else None,
    )


def _whole_label(pair: PairEvidence, least: float) -> Literal["A", "B"] | None:
    """Of those who are right often enough, where they agree by majority."""
    preferred = [a.answer for a in pair.answers if a.reliability is not None and a.reliability.mean >= least]
    a, b = preferred.count("A"), preferred.count("B")
    return None if a == b else "A" if a > b else "B"


def _measure(
    workspace: Workspace, judges: Sequence[Judge], run_id: str, spending: Spending, report: SourcePassReport
) -> int:
    """Ask the judges about gold, at most MEASURED pairs of it; how many."""
    with workspace.store.unit() as db:
        gold = [row[0] for row in db.execute(f"{_GOLD} LIMIT {MEASURED}").fetchall()]
    asking = ask_judges(workspace, judges, load_questions(workspace, gold), run_id, spending)
    report.stopped = asking.stopped or asking.silent
    return len(gold)
