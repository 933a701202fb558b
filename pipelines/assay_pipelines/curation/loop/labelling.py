"""Silver labels by the weighted votes of judges, the source and the loop's reward model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.annotation.votes import MAJORITY
from assay.browsing.candidates import Candidate
from assay.domain import Answer
from assay.runs.progress_file import Counting, noted
from assay.store.records import Decision, Evidence
from assay.workspace import Workspace
from assay_pipelines.judging.asking import StoredOpinion, ask, counted, opinions
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.merging import accuracy_weights, merge_opinions
from assay_pipelines.llm.annotators import annotator_of
from assay_pipelines.llm.budget import Spending
from assay_pipelines.llm.questions import Question
from assay_pipelines.llm.sweep import SweepReport

SOURCE, MODEL = "source", "reward model"
MEASURED = 200  #: gold pairs, at most, that a judge's accuracy is measured on


@dataclass(frozen=True)
class Asked:
    """`stopped`: why a judge stopped early; the loop stops with it and resumes there when run again."""

    reports: tuple[SweepReport, ...]

    @property
    def stopped(self) -> str | None:
        return next((report.stopped for report in self.reports if report.stopped), None)

    @property
    def silent(self) -> str | None:
        """Where no judge answered anything, now or before: what went wrong."""
        if not self.reports or any(report.answered or report.known for report in self.reports):
            return None
        return "no judge answered: " + "; ".join(
            f"{r.judge} " + (", ".join(f"{code} {n}" for code, n in r.failures.items()) or "was not asked")
            for r in self.reports
        )


def ask_judges(
    workspace: Workspace,
    judges: Sequence[Judge],
    questions: Sequence[Question],
    run_id: str,
    spending: Spending,
    *,
    counting: Counting = noted,
) -> Asked:
    """Every judge, every question; nothing is asked twice."""
    reports = []
    for judge in judges:
        with counting(f"asking {annotator_of(judge).name}", len(questions), unit="questions") as advance:
            reports.append(ask(workspace, judge, questions, run_id, budget=spending, advance=advance))
        if reports[-1].stopped:
            break
    return Asked(tuple(reports))


def voter_weights(
    workspace: Workspace,
    judges: Sequence[Judge],
    gold: Sequence[Candidate],
    *,
    model: tuple[int, int] | None,
) -> dict[str, float]:
    """By annotator id, SOURCE and MODEL, from what each said of `gold`, pairs with a label of A or B; a tie or a skip
    says nothing. `model`: (right, asked) of the loop's model; None = it has no vote."""
    names = [annotator_of(judge).id for judge in judges]
    by_comparison = opinions(workspace, [pair.comparison_id for pair in gold], names)
    answers: dict[str, list[bool]] = {name: [] for name in (*names, SOURCE)}
    for pair in gold:
        voters: dict[str, Answer | None] = {SOURCE: pair.source_label}
        voters |= {name: opinion.answer for name, opinion in by_comparison.get(pair.comparison_id, {}).items()}
        for name, answer in voters.items():
            if answer in ("A", "B"):
                answers[name].append(answer == pair.label)
    measured = {name: (sum(right), len(right)) for name, right in answers.items()}
    return accuracy_weights(measured | ({} if model is None else {MODEL: model}))


def silver_decisions(
    workspace: Workspace,
    judges: Sequence[Judge],
    candidates: Sequence[Candidate],
    *,
    source_votes: bool,
    model_p: Mapping[str, float],
    iteration: int,
    weights: Mapping[str, float] | None = None,
    model_version: str | None = None,
    near: Mapping[str, Sequence[Evidence]] | None = None,
) -> list[Decision]:
    """One decision per candidate on which a majority of all voters agree; the others get none and stay as they are,
    and so do those on which every judge failed: source and model alone would pass for what judges agree on.

    `model_p`: comparison id -> P(A beats B) by the loop's model, empty where it has no vote. `weights`: see
    `voter_weights`; None = every voter counts one. `near`: why each was asked, by comparison id.
    """
    names = {annotator_of(judge).id: annotator_of(judge).name for judge in judges}
    by_comparison = opinions(workspace, [c.comparison_id for c in candidates], list(names))
    decisions = []
    for candidate in candidates:
        voters = dict(by_comparison.get(candidate.comparison_id, {}))
        if judges and not voters:
            continue
        if source_votes and candidate.source_label is not None:
            voters[SOURCE] = StoredOpinion(candidate.source_label, None, judgment_ids=candidate.source_judgments)
        if (p := model_p.get(candidate.comparison_id)) is not None and p != 0.5:
            answer: Answer = "A" if p > 0.5 else "B"
            voters[MODEL] = StoredOpinion(answer, max(p, 1 - p))
        merged = merge_opinions(voters, weights=weights, threshold=MAJORITY)
        if merged.winner is None:
            continue
        why = ", ".join(f"{names.get(who, who)} {_answer_words(opinion)}" for who, opinion in voters.items())
        basis = [*counted(voters.values()), *(near or {}).get(candidate.comparison_id, ())]
        if MODEL in voters and model_version is not None:
            basis.append(Evidence("scored by", model_version))
        decisions.append(
            Decision(
                candidate.comparison_id, "silver", merged.winner, "judges_agree", why, iteration=iteration, basis=basis
            )
        )
    return decisions


def _answer_words(opinion: StoredOpinion) -> str:
    return opinion.answer if opinion.confidence is None else f"{opinion.answer} ({opinion.confidence:.2f})"
