"""Silver labels by the weighted votes of judges, the source and the loop's reward model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assay.annotation.votes import MAJORITY
from assay.browsing.candidates import Candidate, Label, decided_meanwhile
from assay.domain import Answer, swap_answer
from assay.runs.progress_file import Counting, noted
from assay.statistics.intervals import beta_posterior
from assay.store.records import Decision, Evidence, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.curation.reliability.estimates import log_odds, reliabilities
from assay_pipelines.curation.reliability.voters import VoterModel, side_probabilities
from assay_pipelines.judging.asking import StoredOpinion, ask, counted, opinions
from assay_pipelines.judging.judge import Judge
from assay_pipelines.judging.merging import merge_opinions
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
    workspace: Workspace, judges: Sequence[Judge], *, model: tuple[int, int] | None = None
) -> dict[str, float]:
    """By annotator id and MODEL, of those that gold has measured: the log odds that an answer is right, the optimal
    weight of voters that err independently (Nitzan and Paroush 1982), and 0 for one no better than chance. A source
    that is surely wrong more often than right has a negative weight: its vote counts for the other side. `model`:
    (right, asked) of the loop's model; None = not measured."""
    with workspace.store.unit() as db:
        worth = reliabilities(db).overall
    weights = {}
    for who in (*(annotator_of(judge).id for judge in judges), *source_annotators(workspace)):
        voter = worth.get(who)
        if voter is not None and voter.worth != "unmeasured":
            turned = voter.kind == "source" and voter.worth == "adversarial"
            weights[who] = log_odds(voter.mean) if turned else max(0.0, log_odds(voter.mean))
    if model is not None:
        weights[MODEL] = max(0.0, log_odds(beta_posterior(*model).mean))
    return weights


def source_annotators(workspace: Workspace) -> dict[str, str]:
    """Name of each source by its annotator id."""
    with workspace.store.unit() as db:
        return dict(db.execute("SELECT annotator_id, name FROM annotators WHERE kind = 'source'").fetchall())


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
    voter_model: VoterModel | None = None,
) -> list[Decision]:
    """One decision per candidate on which a majority of all voters agree; the others get none and stay as they are,
    and so do those on which every judge failed: source and model alone would pass for what judges agree on.

    `model_p`: comparison id -> P(A beats B) by the loop's model, empty where it has no vote. `weights`: see
    `voter_weights`; None = every voter counts one, and all sources together one. `near`: why each was asked, by
    comparison id. `voter_model`: estimates the voters' confusions from all their answers together, and decides with
    its probability; in place of `weights`.
    """
    names = {annotator_of(judge).id: annotator_of(judge).name for judge in judges}
    apart = weights is not None or voter_model is not None  # sources vote each for itself
    sources = source_annotators(workspace) if apart and source_votes else {}
    by_comparison = opinions(workspace, [c.comparison_id for c in candidates], [*names, *sources])
    votes_on: dict[str, dict[str, StoredOpinion]] = {}
    for candidate in candidates:
        voters = dict(by_comparison.get(candidate.comparison_id, {}))
        if judges and not voters.keys() & names.keys():
            continue
        if source_votes and not apart and candidate.source_label is not None:
            voters[SOURCE] = StoredOpinion(candidate.source_label, None, judgment_ids=candidate.source_judgments)
        if (p := model_p.get(candidate.comparison_id)) is not None and p != 0.5:
            answer: Answer = "A" if p > 0.5 else "B"
            voters[MODEL] = StoredOpinion(answer, max(p, 1 - p))
        votes_on[candidate.comparison_id] = voters
    p_first = side_probabilities(voter_model, workspace, votes_on) if voter_model is not None else None
    decisions = []
    for candidate in candidates:
        if (votes := votes_on.get(candidate.comparison_id)) is None:
            continue
        voters = votes
        if p_first is not None:
            winner, preference = _likelier(p_first.get(candidate.comparison_id))
        else:
            winner, preference = _majority(voters, weights), None
        if winner is None:
            continue
        all_names = {**names, **sources}
        why = ", ".join(
            f"{all_names.get(who, who)} {_answer_words(opinion)}"
            + (", counted for the other side" if weights is not None and weights.get(who, 1.0) < 0 else "")
            for who, opinion in voters.items()
        )
        if preference is not None:
            why += f": {voter_model} gives p = {preference:.3f}"
        basis = [*counted(voters.values()), *(near or {}).get(candidate.comparison_id, ())]
        if MODEL in voters and model_version is not None:
            basis.append(Evidence("scored by", model_version))
        decisions.append(
            Decision(
                candidate.comparison_id,
                "silver",
                winner,
                "judges_agree",
                why,
                iteration=iteration,
                basis=basis,
                weight=None if preference is None else 2 * preference - 1,
            )
        )
    return decisions


def _majority(voters: Mapping[str, StoredOpinion], weights: Mapping[str, float] | None) -> Label | None:
    """Votes of a negative weight are turned round."""
    if weights is None:
        return merge_opinions(voters, threshold=MAJORITY).winner
    turned = {
        who: replace(opinion, answer=swap_answer(opinion.answer)) if weights.get(who, 1.0) < 0 else opinion
        for who, opinion in voters.items()
    }
    sizes = {who: abs(weight) for who, weight in weights.items()}
    return merge_opinions(turned, weights=sizes, threshold=MAJORITY).winner


def _likelier(p_first: float | None) -> tuple[Label | None, float | None]:
    if p_first is None or p_first == 0.5:
        return None, None
    return ("A", p_first) if p_first > 0.5 else ("B", 1 - p_first)


def _answer_words(opinion: StoredOpinion) -> str:
    return opinion.answer if opinion.confidence is None else f"{opinion.answer} ({opinion.confidence:.2f})"


def insert_undisturbed(
    workspace: Workspace, candidates: Sequence[Candidate], decisions: Sequence[Decision], run_id: str
) -> set[str]:
    """Write the decisions; returns the ids of those decided otherwise since they were read: that stands."""
    with workspace.store.unit() as db:
        overtaken = decided_meanwhile(db, candidates)
        insert_decisions(db, [d for d in decisions if d.comparison_id not in overtaken], run_id)
    return overtaken
