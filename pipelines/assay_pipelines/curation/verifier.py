"""Gold by verification: the constraint verifier decides where a program can check a prompt's constraints."""

from dataclasses import dataclass

from assay import ids
from assay.browsing.candidates import Candidate, Label, decided_meanwhile, iter_candidates
from assay.data.snapshots import Selection
from assay.domain import Judgment
from assay.runs.progress_bar import Advance, silent
from assay.store.records import Decision, Evidence, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.judging.verifier import ANNOTATOR, judge_constraints

RULE = "verifier"


@dataclass(frozen=True)
class VerifierReport:
    """Counts of comparisons. `confirmed` + `corrected` + `undecided_source` + `ties` = gold decisions made."""

    seen: int = 0
    confirmed: int = 0  #: the verifier agrees with the source's label
    corrected: int = 0  #: the verifier says the opposite; the gold label is the verifier's
    undecided_source: int = 0  #: the source said tie or contradicted itself, the verifier did not
    ties: int = 0  #: both responses satisfy equally many constraints
    unverifiable: int = 0  #: no constraints to check; no decision made
    overtaken: int = 0  #: decided otherwise while the page was checked; that decision stands

    @property
    def gold(self) -> int:
        return self.confirmed + self.corrected + self.undecided_source + self.ties


def verify_pool(
    workspace: Workspace,
    selection: Selection,
    run_id: str,
    *,
    on_progress: Advance = silent,
) -> VerifierReport:
    """Judge every verifiable comparison of the selection and decide it as gold, page by page, each durable."""
    counts = dict.fromkeys(VerifierReport.__dataclass_fields__, 0)
    annotator = ids.annotator_id("verifier", ANNOTATOR)
    for page in iter_candidates(workspace, selection):
        judgments: list[Judgment] = []
        decided: list[tuple[str, Decision]] = []
        for candidate in page:
            counts["seen"] += 1
            judged = judge_constraints(
                candidate.meta, candidate.response_a, candidate.response_b, candidate.comparison_id
            )
            if judged is None:
                counts["unverifiable"] += 1
                continue
            answer, rationale = judged
            judgment = Judgment(candidate.comparison_id, annotator, answer, confidence=1.0, rationale=rationale)
            judgments.append(judgment)
            decided.append(_decide(candidate, judgment, rationale))
        with workspace.store.unit() as db:
            insert_annotator(db, "verifier", ANNOTATOR)
            insert_judgments(db, judgments, run_id)
            overtaken = decided_meanwhile(db, page)
            insert_decisions(db, [d for _, d in decided if d.comparison_id not in overtaken], run_id)
        for outcome, decision in decided:
            counts["overtaken" if decision.comparison_id in overtaken else outcome] += 1
        on_progress(len(page))
    return VerifierReport(**counts)


def _decide(candidate: Candidate, judgment: Judgment, rationale: str) -> tuple[str, Decision]:
    answer = judgment.answer
    if answer not in ("A", "B"):
        outcome, reason = "ties", f"equally many constraints satisfied: {rationale}"
    elif candidate.source_label == answer:
        outcome, reason = "confirmed", f"source's label confirmed: {rationale}"
    elif candidate.source_label in ("A", "B"):
        outcome, reason = "corrected", f"source said {candidate.source_label}: {rationale}"
    else:
        outcome, reason = "undecided_source", f"source had no clear label: {rationale}"
    label: Label = "A" if answer == "A" else "B" if answer == "B" else "tie"
    basis = [Evidence("counted", judgment.id)]
    return outcome, Decision(candidate.comparison_id, "gold", label, RULE, reason, basis=basis)
