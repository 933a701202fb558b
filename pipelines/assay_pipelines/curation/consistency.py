"""Reward-model consistency: keep the source labels that reward models agree with, without asking anybody.

The rule of stage 2 in Skywork-Reward-V2 for one or several reward models, each probability recorded as the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from assay import ids
from assay.browsing.candidates import Candidate, Label, decided_meanwhile, iter_candidates
from assay.data.snapshots import Selection
from assay.domain import Judgment
from assay.errors import BadInputError
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScoreFailure, ScoreResult
from assay.settings import Help
from assay.store.records import (
    Decision,
    Evidence,
    insert_annotator,
    insert_decisions,
    insert_judgments,
    insert_scores,
)
from assay.workspace import Workspace
from assay_pipelines.judging.reward_model import UNCALIBRATED
from assay_pipelines.judging.reward_model import RewardModelJudge as Judge
from assay_pipelines.judging.reward_model import load_reward_model as load_judge
from assay_serving.scorer import ScoreItem, Scorer

__all__ = ["UNCALIBRATED", "ConsistencyConfig", "ConsistencyReport", "Judge", "check_pool", "load_judge"]


@dataclass(frozen=True)
class ConsistencyConfig:
    """p = P(the source's winner wins), by each model in turn, calibrated where the model is.

    Kept as silver when the lowest p is at least `keep_above`; flipped into `recycled` when the highest p is at
    most `flip_below` (0 = never flip); else discarded.
    """

    keep_above: Annotated[float, Help("Keep a label when every model gives it at least this p.")] = 0.5
    flip_below: Annotated[float, Help("Flip it when every model gives it at most this p; 0: never.")] = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.flip_below <= self.keep_above <= 1:
            raise BadInputError(
                f"thresholds must satisfy 0 <= flip_below <= keep_above <= 1, "
                f"not {self.flip_below} and {self.keep_above}"
            )


@dataclass(frozen=True)
class ConsistencyReport:
    """Counts of comparisons. `dry_run`: nothing was written."""

    seen: int = 0
    kept: int = 0
    flipped: int = 0
    discarded: int = 0
    unlabelled: int = 0  #: no A/B label to agree with; no decision made
    unscored: int = 0  #: a model could not score a side; pending, with the reason
    overtaken: int = 0  #: decided otherwise while the models scored; that decision stands
    dry_run: bool = False


def check_pool(
    workspace: Workspace,
    judges: Sequence[Judge],
    config: ConsistencyConfig,
    selection: Selection,
    run_id: str,
    *,
    dry_run: bool = False,
    on_progress: Advance = silent,
) -> ConsistencyReport:
    """Score both sides of every labelled comparison of the selection and decide it. Each page is durable when done,
    so an interrupted pass resumes where it stopped: decided comparisons have left the unverified pool.
    """
    if not judges:
        raise BadInputError("the consistency pass needs at least one reward model")
    counts = dict.fromkeys(("seen", "kept", "flipped", "discarded", "unlabelled", "unscored", "overtaken"), 0)
    for page in iter_candidates(workspace, selection, page=256):
        labelled = [candidate for candidate in page if candidate.label in ("A", "B")]
        counts["seen"] += len(page)
        counts["unlabelled"] += len(page) - len(labelled)
        results = [_score_sides(judge.scorer, labelled) for judge in judges]
        decided = [
            _decide(candidate, judges, [sides[index] for sides in results], config)
            for index, candidate in enumerate(labelled)
        ]
        overtaken: set[str] = set()
        if not dry_run:
            overtaken = _write(workspace, judges, labelled, results, [decision for _, decision in decided], run_id)
        for outcome, decision in decided:
            counts["overtaken" if decision.comparison_id in overtaken else outcome] += 1
        on_progress(len(page))
    return ConsistencyReport(**counts, dry_run=dry_run)


def _score_sides(scorer: Scorer, candidates: Sequence[Candidate]) -> list[tuple[ScoreResult, ScoreResult]]:
    items = [ScoreItem(c.prompt, text) for c in candidates for text in (c.response_a, c.response_b)]
    scores = scorer.score(items)
    return [(scores[2 * i], scores[2 * i + 1]) for i in range(len(candidates))]


def _decide(
    candidate: Candidate,
    judges: Sequence[Judge],
    sides: Sequence[tuple[ScoreResult, ScoreResult]],
    config: ConsistencyConfig,
) -> tuple[str, Decision]:
    probabilities = []
    reasons = []
    basis = [Evidence("checked", judgment) for judgment in candidate.source_judgments]
    for judge, (a, b) in zip(judges, sides, strict=True):
        if isinstance(a, ScoreFailure) or isinstance(b, ScoreFailure):
            failure = a if isinstance(a, ScoreFailure) else b
            assert isinstance(failure, ScoreFailure)
            reason = f"{judge.scorer.info.name} could not score it: {failure.code}: {failure.message}"
            basis.append(Evidence("scored by", judge.scorer.info.version))
            return "unscored", Decision(candidate.comparison_id, "pending", None, "no_score", reason, basis=basis)
        chosen, rejected = (a, b) if candidate.label == "A" else (b, a)
        p = judge.calibration.pair_probability(chosen.reward, rejected.reward)
        probabilities.append(p)
        basis.append(Evidence("counted", _judgment(judge, candidate, a, b).id))
        reasons.append(f"{judge.scorer.info.name}@{judge.scorer.info.version} gives the source's winner p = {p:.3f}")
    why = "; ".join(reasons)
    label = candidate.label
    if min(probabilities) >= config.keep_above:
        return "kept", Decision(candidate.comparison_id, "silver", label, "rm_consistent", why, basis=basis)
    if config.flip_below > 0 and max(probabilities) <= config.flip_below:
        flipped: Label = "B" if label == "A" else "A"
        return "flipped", Decision(candidate.comparison_id, "recycled", flipped, "rm_flipped", why, basis=basis)
    return "discarded", Decision(candidate.comparison_id, "discarded", label, "rm_inconsistent", why, basis=basis)


def _write(
    workspace: Workspace,
    judges: Sequence[Judge],
    candidates: Sequence[Candidate],
    results: Sequence[Sequence[tuple[ScoreResult, ScoreResult]]],
    decisions: Sequence[Decision],
    run_id: str,
) -> set[str]:
    """Write scores, judgments and decisions; returns the ids of those decided otherwise meanwhile."""
    with workspace.store.unit() as db:
        for judge, sides in zip(judges, results, strict=True):
            info = judge.scorer.info
            insert_annotator(db, judge.kind, judge.name, judge.config)
            scored = [
                (response, score)
                for candidate, pair in zip(candidates, sides, strict=True)
                for response, score in zip((candidate.response_a_id, candidate.response_b_id), pair, strict=True)
            ]
            insert_scores(
                db, scored, model=info.name, version=info.version, template_hash=info.template_hash, run_id=run_id
            )
            insert_judgments(db, _judgments(judge, candidates, sides), run_id)
        overtaken = decided_meanwhile(db, candidates)
        insert_decisions(db, [d for d in decisions if d.comparison_id not in overtaken], run_id)
    return overtaken


def _judgments(
    judge: Judge, candidates: Sequence[Candidate], sides: Sequence[tuple[ScoreResult, ScoreResult]]
) -> list[Judgment]:
    return [
        _judgment(judge, candidate, a, b)
        for candidate, (a, b) in zip(candidates, sides, strict=True)
        if isinstance(a, Score) and isinstance(b, Score)
    ]


def _judgment(judge: Judge, candidate: Candidate, a: Score, b: Score) -> Judgment:
    answer, confidence = judge.opinion(a.reward, b.reward)
    annotator = ids.annotator_id("reward_model", judge.name)
    return Judgment(candidate.comparison_id, annotator, answer, confidence=confidence)
