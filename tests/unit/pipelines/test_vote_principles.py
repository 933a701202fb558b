"""What people say of principles with their votes: in the store once, with the vote, and gone with it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from assay import ids
from assay.annotation.vote_journal import JournalWriter, fold
from assay.browsing.comparison import comparison as browsed
from assay.data.snapshots import Selection
from assay.domain import Judgment, PrincipleAnswer
from assay.errors import BadInputError
from assay.runs.lineage import lineage
from assay.runs.record import start_run
from assay.store.feedback_intake import principle_schema, store_principle_judgments
from assay.store.integrity import dangling, repeated
from assay.workspace import Workspace
from assay_pipelines.exporters.export import export
from assay_pipelines.principles.filtering import FilterConfig, filter_principles
from assay_pipelines.principles.report import KIND, principle_report
from assay_rm_training.data.principle_rows import filtered_rows

Fill = Callable[[int], list[str]]
CLEAR, SHORT = "is clear", "is short"


def vote(comparison: str, who: str = "ann", **more: object) -> Judgment:
    return Judgment(comparison, ids.annotator_id("human", who), "A", **more)  # type: ignore[arg-type]


def cast(
    workspace: Workspace, comparison: str, who: str, *said: PrincipleAnswer, origin: str = "queue/q/1"
) -> Judgment:
    judgment = vote(comparison, who, origin=origin)
    with JournalWriter(workspace.journal) as journal:
        journal.append(judgment, annotator=who, principles=said, run_id="run-q")
    return judgment


def standing(workspace: Workspace) -> list[tuple[str, str, str, str | None]]:
    with workspace.store.unit() as db:
        return db.execute(
            """SELECT n.name, p.statement, v.answer, v.evidence FROM standing_principle_judgments v
               JOIN principles p USING (principle_id) JOIN annotators n USING (annotator_id) ORDER BY ALL"""
        ).fetchall()


def test_answers_come_with_the_vote_once_and_go_with_it(workspace: Workspace, fill_comparisons: Fill) -> None:
    (comparison,) = fill_comparisons(1)
    with workspace.store.unit() as db:
        ((a, b),) = db.execute("SELECT response_a, response_b FROM comparisons").fetchall()
    judgment = cast(
        workspace,
        comparison,
        "ann",
        PrincipleAnswer("A", CLEAR, "yes", "answer"),
        PrincipleAnswer("B", CLEAR, "no"),
        PrincipleAnswer("B", SHORT, "partially"),
    )
    assert fold(workspace).new == 1
    cast(workspace, comparison, "ann", PrincipleAnswer("A", CLEAR, "no"))  # the same vote: the first counts
    assert fold(workspace).new == 0
    said = [("ann", CLEAR, "no", None), ("ann", CLEAR, "yes", "answer"), ("ann", SHORT, "partially", None)]
    assert standing(workspace) == said
    author, clear = ids.annotator_id("human", "ann"), ids.principle_id(CLEAR)
    yes = ids.principle_judgment_id(a, clear, author, "yes")
    with workspace.store.unit() as db:
        assert db.execute(
            """SELECT v.response_id, v.annotator_id, v.extractor, v.feedback_id, v.item, v.run_id,
                      v.created_at = j.created_at
               FROM standing_principle_judgments v, judgments j
               WHERE v.judgment_id = ? AND j.judgment_id = ?""",
            [yes, judgment.id],
        ).fetchall() == [(a, author, None, None, comparison, "run-q", True)]
        rows = db.execute("SELECT side, response_id FROM vote_principles ORDER BY ALL").fetchall()
        assert rows == [("A", a), ("B", b), ("B", b)]
        assert (dangling(db).get("vote_principles.judgment_id"), repeated(db)) == (None, {})

    tree = lineage(workspace, yes, "up")
    assert {branch.relation for branch in tree.branches} == {"said with", "by", "of"}
    assert tree.about == f"principle judgment yes by human ann: {CLEAR}"
    assert len(next(x for x in lineage(workspace, judgment.id, "down").branches).nodes) == 3

    with JournalWriter(workspace.journal) as journal:
        journal.withdraw(judgment.id, "undone")
    fold(workspace)
    assert standing(workspace) == []
    assert "taken back" in lineage(workspace, yes, "up").about
    cast(workspace, comparison, "ann", PrincipleAnswer("A", CLEAR, "partially"), origin="queue/q/2")
    fold(workspace)
    assert standing(workspace) == [("ann", CLEAR, "partially", None)]


def test_one_row_for_each_judgment(workspace: Workspace) -> None:
    """A response in two comparisons, and an import that says the same: said once."""
    import pyarrow as pa

    from assay.store.intake import pair_schema, store_pairs

    turn = [{"role": "user", "content": "q"}]
    pairs = [
        {"row": n, "messages": turn, "first": "good", "second": other, "source": "s", "record_id": str(n)}
        for n, other in enumerate(("bad", "worse"), start=1)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(pairs, schema=pair_schema()), None)
        good = ids.response_id(db.execute("SELECT prompt_id FROM prompts").fetchall()[0][0], "good")
        rows = db.execute("SELECT comparison_id, response_a FROM comparisons ORDER BY 1").fetchall()
    first = None
    for comparison, response_a in rows:
        found = cast(workspace, comparison, "ann", PrincipleAnswer("A" if response_a == good else "B", CLEAR, "yes"))
        first = first or found
    fold(workspace)
    assert len(standing(workspace)) == 1
    assert first is not None
    with JournalWriter(workspace.journal) as journal:
        journal.withdraw(first.id, "undone")
    fold(workspace)
    assert len(standing(workspace)) == 1, "the other vote says so still"
    imported = {
        "row": 1, "messages": turn, "response": "good", "kind": "human", "voter": None, "source": "ann",
        "record_id": "1", "principle": CLEAR, "answer": "yes", "evidence": None,
    }  # fmt: skip
    with workspace.store.unit() as db:
        store_principle_judgments(db, pa.Table.from_pylist([imported], schema=principle_schema()), None)
        assert db.execute("SELECT item FROM standing_principle_judgments").fetchall() == [(None,)]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([PrincipleAnswer("C", CLEAR, "yes")], "A or B"),  # type: ignore[arg-type]
        ([PrincipleAnswer("A", "  ", "yes")], "without text"),
        ([PrincipleAnswer("A", CLEAR, "maybe")], "yes, no, partially"),  # type: ignore[arg-type]
        ([PrincipleAnswer("A", CLEAR, "yes", "")], "without text"),
        ([PrincipleAnswer("A", CLEAR, "yes", 3)], "without text"),  # type: ignore[arg-type]
        ([PrincipleAnswer("A", "\ud800", "yes")], "surrogate"),
        ([PrincipleAnswer("A", CLEAR, "yes"), PrincipleAnswer("A", CLEAR, "no")], "two answers"),
    ],
)
def test_what_the_store_would_refuse_is_not_acknowledged(
    workspace: Workspace, fill_comparisons: Fill, said: list[PrincipleAnswer], message: str
) -> None:
    (comparison,) = fill_comparisons(1)
    with pytest.raises(BadInputError, match=message):
        cast(workspace, comparison, "ann", *said)
    cast(workspace, comparison, "bob", PrincipleAnswer("A", CLEAR, "no", "ответ\n\u2028"))
    assert fold(workspace).new == 1
    assert standing(workspace) == [("bob", CLEAR, "no", "ответ\n\u2028")]


def test_answers_on_a_comparison_that_is_not_there_are_told(workspace: Workspace) -> None:
    cast(workspace, "c-nowhere", "ann", PrincipleAnswer("A", CLEAR, "yes"))
    report = fold(workspace)
    assert report.new == 1
    assert "1 answers on principles" in report.problems[0]


FOLDER = """
import sys
from assay.annotation.vote_journal import fold
from assay.workspace import Workspace
here = Workspace.open(sys.argv[1])
print("ready", flush=True)
fold(here)
print("folded", flush=True)
"""


@pytest.mark.slow
def test_a_killed_fold_leaves_all_answers_of_a_vote_or_none(workspace: Workspace, fill_comparisons: Fill) -> None:
    comparisons = fill_comparisons(100)
    with JournalWriter(workspace.journal) as journal:
        for comparison in comparisons:
            journal.append(
                vote(comparison, origin="queue/q/1"),
                annotator="ann",
                principles=[PrincipleAnswer("A", CLEAR, "yes"), PrincipleAnswer("B", CLEAR, "no")],
            )
    for delay in (0.02, 0.1, 0.25):
        process = subprocess.Popen(
            [sys.executable, "-c", FOLDER, str(workspace.root)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.communicate()
        with workspace.store.unit() as db:
            ((votes, answers),) = db.execute(
                """SELECT (SELECT count(*) FROM judgments WHERE origin = 'queue/q/1'),
                          (SELECT count(*) FROM vote_principles)"""
            ).fetchall()
        assert (votes, answers) in ((0, 0), (100, 200))
    fold(workspace)
    assert len(standing(workspace)) == 200
    with workspace.store.unit() as db:
        assert repeated(db) == {}


class Meanings:
    """An encoder in which every statement is of a meaning of its own."""

    name, dimension = "by-name", 2

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.eye(2, dtype=np.float32)[[(CLEAR, SHORT).index(text) for text in texts]]


@pytest.mark.slow
def test_filtering_and_export_see_what_people_said(
    workspace: Workspace, fill_comparisons: Fill, tmp_path: Path
) -> None:
    one, two, three = fill_comparisons(3)
    cast(workspace, one, "ann", PrincipleAnswer("A", CLEAR, "yes"), PrincipleAnswer("A", SHORT, "yes"))
    cast(workspace, one, "bob", PrincipleAnswer("A", CLEAR, "yes"))
    cast(workspace, three, "ann", PrincipleAnswer("A", SHORT, "yes"))
    cast(workspace, three, "bob", PrincipleAnswer("A", SHORT, "partially"))
    cast(workspace, two, "ann", PrincipleAnswer("B", CLEAR, "no"))
    bobs = cast(workspace, two, "bob", PrincipleAnswer("B", CLEAR, "no"))
    fold(workspace)
    with start_run(workspace, KIND, {}) as run:
        found = filter_principles(workspace, Meanings(), FilterConfig(), run.id)
    # of one they agree on "clear" and not on "short", of two on "not clear"; of three bob's "partially" is no "yes"
    assert (found.items, found.accepted) == (7, 2)
    assert {stage: n for stage, n in found.dropped.items() if n} == {"partially": 1, "consensus": 2, "duplicate": 2}
    assert found.groups == {2: 3}
    assert principle_report(workspace).stated == 7
    export(workspace, tmp_path / "p.jsonl", Selection(), format="helpsteer3")
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert sorted((row["principle"], row["fulfilment"]) for row in rows) == [
        (CLEAR, "No"), (CLEAR, "Yes"), (SHORT, "Yes"), (SHORT, "Yes")
    ]  # fmt: skip
    assert [(row.principle, row.fulfilled) for row in filtered_rows(workspace)] in (
        [(CLEAR, True), (CLEAR, False)],
        [(CLEAR, False), (CLEAR, True)],
    )
    with JournalWriter(workspace.journal) as journal:
        journal.withdraw(bobs.id, "undone")
    fold(workspace)
    assert principle_report(workspace).stated == 6


def test_a_comparison_s_page_has_them(workspace: Workspace, fill_comparisons: Fill) -> None:
    (comparison,) = fill_comparisons(1)
    cast(workspace, comparison, "ann", PrincipleAnswer("B", CLEAR, "yes", "answer"))
    fold(workspace)
    with workspace.store.unit() as db:
        found = browsed(db, comparison).principle_votes
    assert [(v.side, v.principle, v.annotator, v.kind, v.answer, v.evidence) for v in found] == [
        ("B", CLEAR, "ann", "human", "yes", "answer")
    ]
