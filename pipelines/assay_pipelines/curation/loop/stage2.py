"""Stage 2 of Skywork-Reward-V2: keep what two reward models agree with, ask judges about the rest.

keep      the gold model agrees with the source's label, and so does the best model or the judges' majority
recycle   a discarded pair whose other side the models prefer, with the label flipped; a snapshot may use it
discard   the rest, each with its probabilities as the reason
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.browsing.candidates import Candidate, Label, decided_meanwhile, iter_candidates
from assay.data.snapshots import Selection
from assay.domain import PreferencePair
from assay.runs.progress_bar import Advance, silent
from assay.store.records import Decision, Evidence, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.loop.config import Stage2Config
from assay_pipelines.curation.loop.labelling import ask_judges
from assay_pipelines.curation.loop.reward_models import LoopModel
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


@dataclass(frozen=True)
class Stage2Parts:
    """`best`: the best reward model there is; `gold`: one trained on human-verified pairs alone. `demonstrate`:
    labelled neighbours for a judge's prompt."""

    workspace: Workspace
    best: LoopModel
    gold: LoopModel
    judges: Sequence[Judge] = ()
    demonstrate: Demonstrate | None = None
    spending: Spending | None = None


def run_stage2(
    config: Stage2Config,
    parts: Stage2Parts,
    selection: Selection,
    run_id: str,
    *,
    dry_run: bool = False,
    advance: Advance = silent,
) -> Stage2Report:
    """Decide every labelled comparison of the selection. Each page is durable when done; running again resumes. A
    spent budget leaves the rest undecided, and `stopped` says so. A dry run decides and asks nothing.
    """
    report = Stage2Report(dry_run=dry_run)
    spending = parts.spending or Spending()
    before = spending.cost
    for page in iter_candidates(parts.workspace, selection, page=PAGE):
        labelled = [c for c in page if c.source_label in ("A", "B")]
        report.seen += len(page)
        report.unlabelled += len(page) - len(labelled)
        pairs = [_pair(c) for c in labelled]
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
        overtaken = set() if dry_run else _write(parts.workspace, [c for c, _, _ in scored], decisions, run_id)
        counts = Counter(d.pool for d in decisions if d.comparison_id not in overtaken)
        report.kept += counts["silver"]
        report.recycled += counts["recycled"]
        report.discarded += counts["discarded"]
        report.overtaken += len(overtaken)
        advance(len(page))
    if not dry_run:
        report.cost = spending.cost - before
    return report


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


def _write(
    workspace: Workspace, candidates: Sequence[Candidate], decisions: Sequence[Decision], run_id: str
) -> set[str]:
    """The ids of those decided otherwise meanwhile; those decisions stand."""
    with workspace.store.unit() as db:
        overtaken = decided_meanwhile(db, candidates)
        insert_decisions(db, [d for d in decisions if d.comparison_id not in overtaken], run_id)
    return overtaken


def _pair(candidate: Candidate) -> PreferencePair:
    """The source's label as chosen and rejected."""
    sides = (candidate.response_a, candidate.response_b)
    chosen, rejected = sides if candidate.source_label == "A" else sides[::-1]
    return PreferencePair(candidate.prompt, chosen, rejected, candidate.comparison_id)
