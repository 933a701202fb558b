"""Stage 2 of Skywork-Reward-V2: keep what two reward models agree with, ask judges about the rest.

keep      the gold model agrees with the source's label, and so does the best model or the judges' majority
recycle   a discarded pair whose other side the models prefer, with the label flipped; a snapshot may use it
discard   the rest, each with its probabilities as the reason
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from assay.browsing.candidates import Candidate, Label, iter_candidates
from assay.data.snapshots import Selection
from assay.runs.progress_bar import Advance, silent
from assay.store.records import Decision, Evidence
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import Stage2Config
from assay_pipelines.curation.loop.held_out import Refit, gold_probabilities
from assay_pipelines.curation.loop.labelling import ask_judges, insert_undisturbed
from assay_pipelines.curation.loop.reward_models import LoopModel, preferring
from assay_pipelines.curation.reliability.estimates import Reliabilities, reliabilities
from assay_pipelines.curation.reliability.evidence import CHANCE, evidence_of
from assay_pipelines.curation.reliability.label_quality import (
    LabelQuality,
    Outcome,
    folds_of,
    label_quality,
    outcome,
    refuse_worse,
)
from assay_pipelines.judging.asking import counted, opinions
from assay_pipelines.judging.estimating import estimate
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.merging import merge_opinions
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.questions import Demonstration, Question, questions_of

PAGE = 256
Demonstrate = Callable[[Sequence[str]], Mapping[str, Sequence[Demonstration]]]


@dataclass
class Stage2Report:
    """Counts of comparisons. `sure`: the best model agrees with the source. `to_ask`: questions, over all judges, not
    answered in an earlier run; in a dry run what would be asked, the decisions being those without the judges.
    `unlabelled`, `unscored`, `unanswered` (what the judges say would decide, and every judge failed): left alone."""

    seen: int = 0
    kept: int = 0
    recycled: int = 0
    discarded: int = 0
    sure: int = 0
    relabelled: int = 0
    failures: dict[str, int] = field(default_factory=dict)  #: of judges, by code
    to_ask: int = 0
    unlabelled: int = 0
    unscored: int = 0
    unanswered: int = 0
    overtaken: int = 0
    calls: int = 0  #: dry run: of language models that asking takes at most; tokens and cost likewise
    tokens: int = 0
    cost: float | None = 0.0  #: spent; in a dry run at most needed, None where a judge has no prices
    stopped: str | None = None
    dry_run: bool = False
    quality: dict[str, Any] = field(default_factory=dict)  #: of labels before and after, estimated on gold
    quality_text: str = ""


@dataclass(frozen=True)
class Stage2Parts:
    """`best`: the best reward model there is; `gold`: one trained on human-verified pairs alone. `demonstrate`:
    labelled neighbours for a judge's prompt. `refit_best`, `refit_gold`: train that model again without a fold of gold;
    None where it has seen no gold."""

    workspace: Workspace
    best: LoopModel
    gold: LoopModel
    judges: Sequence[Judge] = ()
    demonstrate: Demonstrate | None = None
    spending: Spending | None = None
    refit_best: Refit | None = None
    refit_gold: Refit | None = None


def run_stage2(
    config: Stage2Config,
    parts: Stage2Parts,
    selection: Selection,
    run_id: str,
    *,
    dry_run: bool = False,
    force: bool = False,
    advance: Advance = silent,
) -> Stage2Report:
    """Decide every labelled comparison of the selection. Each page is durable when done; running again resumes. A
    spent budget leaves the rest undecided, and `stopped` says so. A dry run decides and asks nothing.

    Raises BadInputError where the labels would get worse, as estimated on gold without the judges, unless `force`.
    """
    report = Stage2Report(dry_run=dry_run)
    quality = gold_quality(config, parts)
    report.quality, report.quality_text = quality.to_dict(), quality.text
    refuse_worse(quality, "stage 2", force=force or dry_run)
    with parts.workspace.store.unit() as db:
        worth = reliabilities(db)
    spending = parts.spending or Spending()
    before = spending.cost
    for page in iter_candidates(parts.workspace, selection, page=PAGE):
        labelled = [c for c in page if c.source_label in ("A", "B")]
        report.seen += len(page)
        report.unlabelled += len(page) - len(labelled)
        pairs = [preferring(c, c.source_label) for c in labelled]
        both = list(zip(labelled, parts.best.probabilities(pairs), parts.gold.probabilities(pairs), strict=True))
        scored = [(c, best, gold) for c, best, gold in both if best is not None and gold is not None]
        report.unscored += len(both) - len(scored)
        doubted = [c for c, best, gold in scored if gold > config.keep_above >= best]
        report.sure += sum(best > config.keep_above for _, best, _ in scored)
        judged: Mapping[str, JudgedPair] = {}
        if parts.judges and doubted:
            if dry_run:
                _count_questions(parts, doubted, report)
            else:
                judged = _ask(parts, doubted, run_id, spending, report)
                if report.stopped:
                    break
                silent = {c.comparison_id for c in doubted} - judged.keys()
                report.unanswered += len(silent)
                scored = [s for s in scored if s[0].comparison_id not in silent]
        models = [Evidence("scored by", model.scorer.info.version) for model in (parts.best, parts.gold)]
        decisions = [_decide(c, best, gold, judged.get(c.comparison_id), models, config) for c, best, gold in scored]
        if config.sources == "weights":
            decisions = _weighted(parts.workspace, decisions, worth)
        overtaken: set[str] = set()
        if not dry_run:
            overtaken = insert_undisturbed(parts.workspace, [c for c, _, _ in scored], decisions, run_id)
        counts = Counter(d.pool for d in decisions if d.comparison_id not in overtaken)
        report.kept += counts["silver"]
        report.recycled += counts["recycled"]
        report.discarded += counts["discarded"]
        report.overtaken += len(overtaken)
        advance(len(page))
    if not dry_run:
        report.cost = spending.cost - before
    return report


def gold_quality(config: Stage2Config, parts: Stage2Parts) -> LabelQuality:
    """What the rule would make of gold's own source labels, by models that have not seen those pairs, each weighed by
    the reliabilities of the other folds."""
    by_gold = {c.comparison_id: p for c, p in gold_probabilities(parts.workspace, parts.gold, parts.refit_gold)}
    decisions: dict[str, Decision] = {}
    sides: dict[str, tuple[Literal["A", "B"], Literal["A", "B"]]] = {}
    for candidate, p_best in gold_probabilities(parts.workspace, parts.best, parts.refit_best):
        label, source = candidate.label, candidate.source_label
        if label not in ("A", "B") or source not in ("A", "B") or candidate.comparison_id not in by_gold:
            continue
        p_gold = by_gold[candidate.comparison_id]
        of_source = (p_best, p_gold) if source == label else (1 - p_best, 1 - p_gold)
        decisions[candidate.comparison_id] = _decide(candidate, *of_source, None, (), config)
        sides[candidate.comparison_id] = label, source
    outcomes: list[Outcome] = []
    for fold in folds_of(list(decisions)):
        with parts.workspace.store.unit() as db:
            worth = reliabilities(db, without=fold)
        held_out = [decisions[comparison] for comparison in fold]
        if config.sources == "weights":
            held_out = _weighted(parts.workspace, held_out, worth)
        outcomes += [outcome(*sides[decision.comparison_id], decision) for decision in held_out]
    return label_quality(outcomes)


def _weighted(workspace: Workspace, decisions: Sequence[Decision], worth: Reliabilities) -> list[Decision]:
    """What is kept, by what its sources are worth; those that gold has not measured count as they are."""
    kept = [d.comparison_id for d in decisions if d.pool == "silver"]
    with workspace.store.unit() as db:
        evidence = {pair.comparison_id: pair for pair in evidence_of(db, kept, worth)}
    weighted = []
    for decision in decisions:
        pair = evidence.get(decision.comparison_id)
        if decision.pool == "silver" and pair is not None and pair.measured:
            why = f"{decision.reason}; {pair.text}"
            if pair.label is None:
                decision = replace(decision, pool="discarded", rule=CHANCE, reason=why)
            elif pair.label == decision.label:
                decision = replace(decision, reason=why, weight=2 * pair.p_right - 1)
        weighted.append(decision)
    return weighted


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """`label`: of the judges' majority, None where they are split. `words`: each answer. `basis`: what was counted."""

    label: Label | None
    words: str
    basis: Sequence[Evidence]


def _decide(
    candidate: Candidate,
    best: float,
    gold: float,
    judged: JudgedPair | None,
    models: Sequence[Evidence],
    config: Stage2Config,
) -> Decision:
    label = candidate.source_label
    assert label in ("A", "B")
    why = f"source {label}: best model p = {best:.3f}, gold model p = {gold:.3f}"
    basis = [*models, *(Evidence("checked", judgment) for judgment in candidate.source_judgments)]
    if judged is not None:
        why += f"; judges {judged.words}"
        basis += judged.basis
    confirmed = best > config.keep_above or (judged is not None and judged.label == label)
    if gold > config.keep_above and confirmed:
        return Decision(candidate.comparison_id, "silver", label, "stage2_agree", why, basis=basis)
    if config.recycle_below > 0 and max(best, gold) <= config.recycle_below:
        flipped: Label = "B" if label == "A" else "A"
        return Decision(candidate.comparison_id, "recycled", flipped, "stage2_flipped", why, basis=basis)
    return Decision(candidate.comparison_id, "discarded", label, "stage2_disagree", why, basis=basis)


def _ask(
    parts: Stage2Parts, doubted: Sequence[Candidate], run_id: str, spending: Spending, report: Stage2Report
) -> dict[str, JudgedPair]:
    """By comparison id; without those on which every judge failed."""
    ids = [c.comparison_id for c in doubted]
    questions = _questions(parts, doubted)
    asking = ask_judges(parts.workspace, parts.judges, questions, run_id, spending)
    report.stopped = asking.stopped
    report.to_ask += sum(r.asked for r in asking.reports)
    for one in asking.reports:
        for code, number in one.failures.items():
            report.failures[code] = report.failures.get(code, 0) + number
    names = {annotator_of(judge).id: annotator_of(judge).name for judge in parts.judges}
    answers: dict[str, JudgedPair] = {}
    for comparison, by_judge in opinions(parts.workspace, ids, list(names)).items():
        words = ", ".join(f"{names[who]} {opinion.answer}" for who, opinion in by_judge.items())
        answers[comparison] = JudgedPair(merge_opinions(by_judge).winner, words, counted(by_judge.values()))
    report.relabelled += len(answers)
    return answers


def _count_questions(parts: Stage2Parts, doubted: Sequence[Candidate], report: Stage2Report) -> None:
    """What asking would take at most."""
    for judge in parts.judges:
        costs = estimate(parts.workspace, judge, _questions(parts, doubted))
        report.to_ask += costs.questions
        report.calls += costs.calls
        report.tokens += costs.tokens
        if costs.calls:
            report.cost = None if report.cost is None or costs.cost is None else report.cost + costs.cost


def _questions(parts: Stage2Parts, doubted: Sequence[Candidate]) -> list[Question]:
    examples = parts.demonstrate([c.comparison_id for c in doubted]) if parts.demonstrate is not None else {}
    return questions_of(parts.workspace, doubted, examples)
