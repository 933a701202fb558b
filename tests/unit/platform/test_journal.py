"""The vote journal: what was acknowledged is in the store exactly once, whatever happens in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay import ids
from assay.annotation.vote_journal import DAMAGED, FOLDED, JournalWriter, fold, fold_if_free
from assay.domain import Judgment
from assay.errors import BadInputError
from assay.workspace import Workspace

ANN = ids.annotator_id("human", "ann")


def vote(number: int, **more: object) -> Judgment:
    return Judgment(f"c-{number}", ANN, "A", **more)  # type: ignore[arg-type]


def stored(workspace: Workspace) -> list[str]:
    with workspace.store.unit() as db:
        return [c for (c,) in db.execute("SELECT comparison_id FROM judgments ORDER BY 1").fetchall()]


def test_votes_reach_the_store_once_and_files_are_retired(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        journal.append(vote(1, rationale="ключ\n\u2028", strength=3, seconds=1.5, shown_order="BA"), annotator="ann")
        journal.append(vote(2), annotator="ann")
        live = fold(workspace)
        assert (live.files, live.votes, live.new) == (1, 2, 2)
        journal.append(vote(3), annotator="ann")
        journal.append(vote(3), annotator="ann")
    done = fold(workspace)
    assert (done.votes, done.new, done.torn, done.damaged) == (4, 1, 0, 0)
    assert fold(workspace).files == 0
    assert stored(workspace) == ["c-1", "c-2", "c-3"]
    assert len(list((workspace.journal / FOLDED).iterdir())) == 1
    with workspace.store.unit() as db:
        row = db.execute(
            """SELECT judgment_id, rationale, strength, seconds, shown_order, kind, name
               FROM judgments JOIN annotators USING (annotator_id) WHERE comparison_id = 'c-1'"""
        ).fetchone()
    assert row == (vote(1, strength=3).id, "ключ\n\u2028", 3, 1.5, "BA", "human", "ann")


def test_each_writer_has_its_own_file(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as one, JournalWriter(workspace.journal) as two:
        one.append(vote(1), annotator="ann")
        two.append(vote(2), annotator="ann")
        assert fold(workspace).files == 2
    assert stored(workspace) == ["c-1", "c-2"]


def only_file(workspace: Workspace) -> Path:
    (path,) = workspace.journal.glob("votes-*.jsonl")
    return path


def test_a_torn_last_line_is_reported_and_the_rest_is_kept(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        journal.append(vote(1), annotator="ann")
        journal.append(vote(2), annotator="ann")
    path = only_file(workspace)
    path.write_bytes(path.read_bytes()[:-20])
    report = fold(workspace)
    assert (report.new, report.torn, report.damaged) == (1, 1, 0)
    assert "never acknowledged" in report.problems[0]
    assert stored(workspace) == ["c-1"]


def test_a_damaged_line_is_reported_and_its_file_kept_apart(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        journal.append(vote(1), annotator="ann")
        journal.append(vote(2), annotator="ann")
    path = only_file(workspace)
    path.write_bytes(path.read_bytes().replace(b'"c-1"', b'"c-9"'))
    report = fold(workspace)
    assert (report.new, report.damaged) == (1, 1)
    assert stored(workspace) == ["c-2"]
    assert (workspace.journal / DAMAGED / path.name).exists()


@pytest.mark.parametrize(
    "wrong", [{"strength": 2.5}, {"strength": True}, {"rationale": 5}, {"seconds": "3"}, {"origin": None}]
)
def test_a_vote_of_wrong_types_is_refused_and_blocks_no_other(workspace: Workspace, wrong: dict[str, object]) -> None:
    with JournalWriter(workspace.journal) as journal:
        journal.append(vote(1), annotator="ann")
        with pytest.raises(BadInputError, match=f"field '{next(iter(wrong))}': wrong type"):
            journal.append(vote(2, **wrong), annotator="ann")
    assert fold(workspace).new == 1
    assert stored(workspace) == ["c-1"]


def test_votes_the_store_would_refuse_are_not_acknowledged(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        for bad, field in (
            (vote(1, strength=9), "strength"),
            (vote(1, confidence=2.0), "confidence"),
            (vote(1, seconds=-1.0), "seconds"),
            (vote(1, rationale="\ud800"), "rationale"),
            (Judgment("c-1", "a-other", "A"), "annotator_id"),
        ):
            with pytest.raises(BadInputError, match=field):
                journal.append(bad, annotator="ann")
        journal.append(vote(2), annotator="ann")
    assert fold(workspace).new == 1


WRITER = """
import sys
from assay import ids
from assay.domain import Judgment
from assay.annotation.vote_journal import JournalWriter
from pathlib import Path

journal = JournalWriter(Path(sys.argv[1]))
for number in range(10**9):
    journal.append(Judgment(f"c-{number}", ids.annotator_id("human", "ann"), "B"), annotator="ann")
    print(number, flush=True)  # the acknowledgement
"""


def test_a_killed_writer_loses_no_acknowledged_vote(workspace: Workspace) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(workspace.journal)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(50)]
    fold(workspace)  # while it is writing
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged += [int(line) for line in writer.stdout.read().split("\n") if line]
    writer.wait()
    report = fold(workspace)
    assert report.damaged == 0
    assert fold(workspace).files == 0
    found = stored(workspace)
    assert len(found) == len(set(found))
    assert {f"c-{n}" for n in acknowledged} <= set(found)
    assert len(found) <= len(acknowledged) + 1, "at most the vote that was durable but not yet acknowledged"


FOLDER = """
import sys
from assay.annotation.vote_journal import fold
from assay.workspace import Workspace
print("ready", flush=True)
print(fold(Workspace.open(sys.argv[1])).new, flush=True)
"""


def test_a_killed_fold_is_simply_repeated(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        for number in range(200):
            journal.append(vote(number), annotator="ann")
    for delay in (0.0, 0.05, 0.1):
        process = subprocess.Popen(
            [sys.executable, "-c", FOLDER, str(workspace.root)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        process.wait()
        process.stdout.close()
    fold(workspace)
    assert len(stored(workspace)) == 200


def test_a_vote_taken_back_stays_and_stands_no_more(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        journal.append(vote(1), annotator="ann", run_id="run-x")
        journal.append(vote(2), annotator="ann")
        fold(workspace)
        journal.withdraw(vote(1).id, "undone")
        journal.withdraw(vote(9).id, "its vote lies in another file")
        journal.withdraw(vote(1).id, "undone again")
        with pytest.raises(BadInputError, match="judgment_id"):
            journal.withdraw("c-1", "")
        report = fold(workspace)
        assert (report.votes, report.new, report.withdrawn, report.damaged) == (2, 0, 2, 0)
    assert fold(workspace).withdrawn == 0
    assert stored(workspace) == ["c-1", "c-2"]
    with workspace.store.unit() as db:
        assert db.execute("SELECT comparison_id FROM standing_judgments").fetchall() == [("c-2",)]
        assert db.execute("SELECT reason FROM withdrawn_judgments ORDER BY 1").fetchall()[-1] == ("undone",)
        assert db.execute("SELECT run_id FROM judgments WHERE comparison_id = 'c-1'").fetchone() == ("run-x",)


def test_a_fold_that_finds_the_store_held_leaves_the_votes(workspace: Workspace) -> None:
    with JournalWriter(workspace.journal) as journal:
        journal.append(vote(1), annotator="ann")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(workspace.store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert fold_if_free(workspace) is None
    holder.communicate("let go\n")
    report = fold_if_free(workspace)
    assert report is not None
    assert report.new == 1


HOLDER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""
