"""What the same votes come to for each of their callers, and that strength survives as the margin of gold."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from annotating import vote

from assay.browsing.candidates import candidates_by_id
from assay.cli.main import main
from assay.data.snapshots import Selection, create_snapshot, load_pairs
from assay.domain import Answer, Judgment
from assay.runs.record import start_run
from assay.store.records import Decision, insert_annotator, insert_decisions, insert_judgments
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue, queue_progress
from assay_pipelines.annotation.resolution import resolve_queue
from assay_pipelines.annotation.service import AnnotationService
from assay_pipelines.curation.conflicts import party_agreements
from assay_pipelines.curation.loop.labelling import silver_decisions
from assay_pipelines.curation.loop.people import CollectedAnswers, JudgedPeople, QueuedPeople
from assay_pipelines.curation.loop.stage1 import gold_decisions
from assay_pipelines.exporters.export import export
from assay_pipelines.judging.asking import ask
from assay_pipelines.judging.judge import Judge, Vote
from assay_pipelines.judging.merging import merge_opinions, merge_votes
from assay_pipelines.judging.recorded import RecordedJudge
from assay_pipelines.llm.questions import load_questions
from assay_serving.generative.answers import JudgeSample
from assay_serving.generative.pairwise import pair_outcome
from assay_serving.generative.verdict import read_verdict

Fill = Callable[[int], list[str]]
Caller = Callable[[Workspace, str, Sequence[Answer]], str | None]
AABT: tuple[Answer, ...] = ("A", "A", "B", "tie")


def judges_of(folder: Path, comparison: str, answers: Sequence[Answer], strength: int) -> list[Judge]:
    """One judge per answer, each with a recorded vote on the comparison."""
    judges: list[Judge] = []
    for number, answer in enumerate(answers):
        path = folder / f"votes-{number}.jsonl"
        path.write_text(json.dumps({"comparison_id": comparison, "answer": answer, "strength": strength}))
        judges.append(RecordedJudge.from_file(path, name=f"recorded {number}"))
    return judges


def vote_all(workspace: Workspace, comparison: str, answers: Sequence[Answer], strength: int | None = None) -> None:
    """A queue in which one annotator per answer votes."""
    create_queue(workspace, "q", [QueueItem(comparison)], overlap=len(answers), gold_checks=0.0, run_id=None)
    with AnnotationService(workspace) as desk:
        for number, answer in enumerate(answers):
            item = desk.next("q", f"annotator {number}")
            assert item is not None
            choice = "first" if answer == item.shown_order[0] else "second" if answer in ("A", "B") else answer
            vote(desk, item, choice, strength=strength)


def queue(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    vote_all(workspace, comparison, answers)
    conflict = queue_progress(workspace, "q").conflicts
    report = resolve_queue(workspace, "q", None)
    assert report.conflicts == conflict
    return label_of(workspace, comparison)


def stage1_queue(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    vote_all(workspace, comparison, answers)
    return from_queue(workspace, comparison, len(answers)).answers[comparison].outcome


def from_queue(workspace: Workspace, comparison: str, overlap: int) -> CollectedAnswers:
    people = QueuedPeople(workspace, overlap=overlap, gold_checks=0.0)
    with start_run(workspace, "curate-stage1", {}) as run:
        return people.ask("q", load_questions(workspace, [comparison]), {comparison: {}}, run.id)


def from_judges(workspace: Workspace, comparison: str, judges: Sequence[Judge]) -> CollectedAnswers:
    with start_run(workspace, "curate-stage1", {}) as run:
        return JudgedPeople(workspace, judges).ask("q", load_questions(workspace, [comparison]), {}, run.id)


def one_judge(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    return merge_votes([Vote(answer, sample=n) for n, answer in enumerate(answers)]).answer


def several_judges(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    return merge_opinions({str(n): Vote(answer) for n, answer in enumerate(answers)}).winner


def silver(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    folder = workspace.root.parent
    judges = judges_of(folder, comparison, answers, 1)
    for judge in judges:
        ask(workspace, judge, load_questions(workspace, [comparison]), None)
    candidates = candidates_by_id(workspace, [comparison])
    labels = silver_decisions(workspace, judges, candidates, source_votes=False, model_p={}, iteration=1)
    return labels[0].label if labels else None


def party(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    with workspace.store.unit() as db:
        for number, answer in enumerate(answers):
            annotator = insert_annotator(db, "human", f"person {number}")
            insert_judgments(db, [Judgment(comparison, annotator, answer)], None)
        party_agreements(db)
        row = db.execute("SELECT people FROM parties WHERE comparison_id = ?", [comparison]).fetchone()
    assert row is not None
    return str(row[0])


def verdicts(workspace: Workspace, comparison: str, answers: Sequence[Answer]) -> str | None:
    """A verdict has no tie: the vote that says it cannot be read."""
    read = [read_verdict(f"Verdict: {answer}" if answer != "tie" else "none", ("A", "B")) for answer in answers]
    samples = [JudgeSample("x", True, 1, 1, verdict, None) for verdict in read]
    return pair_outcome([samples], [(0, 1)]).orders[0].decision


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (queue, None),  # MAJORITY: 2 of 4 is not more than half
        (stage1_queue, None),
        (one_judge, "A"),  # PLURALITY
        (several_judges, "A"),
        (silver, None),  # MAJORITY
        (party, "split"),  # MAJORITY
        (verdicts, "A"),  # PLURALITY of A, A, B
    ],
)
def test_what_a_a_b_tie_comes_to(
    workspace: Workspace, fill_comparisons: Fill, caller: Caller, expected: str | None
) -> None:
    (comparison,) = fill_comparisons(1)
    assert caller(workspace, comparison, AABT) == expected


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (["A"], "A"),
        (["A", "A", "B"], "A"),
        (["A", "B"], None),
        (["A", "B", "tie"], None),
        (["both_good", "both_bad", "A"], "tie"),
        (["skip", "skip", "A"], "undecided"),
        (["skip", "A"], None),
    ],
)
def test_recorded_annotators_of_a_loop_decide_by_majority(
    workspace: Workspace, fill_comparisons: Fill, tmp_path: Path, answers: list[Answer], outcome: str | None
) -> None:
    (comparison,) = fill_comparisons(1)
    judges = judges_of(tmp_path, comparison, answers, 1)
    assert from_judges(workspace, comparison, judges).answers[comparison].outcome == outcome


@pytest.mark.slow
@pytest.mark.parametrize("through", ["queue", "judges"])
def test_strength_becomes_the_margin_of_gold_in_exports_and_training(
    workspace: Workspace, fill_comparisons: Fill, tmp_path: Path, through: str, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison, *others = fill_comparisons(8)
    if through == "queue":
        vote_all(workspace, comparison, ("A", "A", "A"), strength=3)
        collected = from_queue(workspace, comparison, 3)
    else:
        collected = from_judges(workspace, comparison, judges_of(tmp_path, comparison, ("A", "A", "A"), 3))
    decisions = gold_decisions(collected, 1, {})
    assert [(d.label, d.rule, d.margin) for d in decisions] == [("A", "people", 3.0)]
    with workspace.store.unit() as db:
        insert_decisions(db, decisions, None)
        insert_decisions(db, [Decision(c, "gold", "A", "people", "votes", 3.0) for c in others], None)
    create_snapshot(workspace, "gold", Selection(("gold",)), None)
    assert {pair.margin for pair in load_pairs(workspace, "gold")} == {3.0}
    export(workspace, tmp_path / "out.jsonl", Selection(("gold",)), format="trl")
    assert [json.loads(line)["margin"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [3.0] * 8
    losses = {}
    for name, options in (("plain", []), ("margins", ["--margins"])):
        command = ["train", "bt", "--data", "gold", "--base", "tiny", "--name", name, "--epochs", "1", *options]
        with pytest.raises(SystemExit) as ended:
            main([*command, "--device", "cpu", "-w", str(workspace.root), "--json"])
        assert ended.value.code == 0
        metrics = Path(json.loads(capsys.readouterr().out)["metrics_file"]).read_text().splitlines()
        losses[name] = json.loads(metrics[0])["loss"]
    assert losses["margins"] > losses["plain"] + 1.0, "a margin of 3 raises -log sigmoid(d - m)"


def label_of(workspace: Workspace, comparison: str) -> str | None:
    with workspace.store.unit() as db:
        row = db.execute(
            "SELECT label FROM current_decisions WHERE comparison_id = ? AND pool = 'gold'", [comparison]
        ).fetchone()
    return row[0] if row else None
