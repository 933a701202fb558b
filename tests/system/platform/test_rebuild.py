"""The store is lost, damaged or behind: what was acknowledged comes back from the redo log and the journal."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from store_contents import store_contents

from assay import ids
from assay.annotation.vote_journal import JournalWriter, fold
from assay.backups.rebuild import rebuild
from assay.cli.main import main
from assay.data.snapshots import Selection, create_snapshot
from assay.domain import Judgment
from assay.errors import BackendError, BadInputError, BusyError
from assay.models.calibration import Calibration
from assay.runs.calibrations import record_calibration, refresh_probabilities
from assay.runs.lineage import lineage
from assay.runs.record import start_run
from assay.score import Score, ScoreFailure
from assay.store import database, schema
from assay.store.records import Decision, insert_decisions, insert_scores
from assay.store.schema import migrations
from assay.workspace import Workspace
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from assay_pipelines.judging.fake_endpoint import fake_endpoint, longer_wins

PAIRS = 350  #: more than go into a line of the log


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with an import, hygiene, paid judge answers, votes, decisions, scores and a snapshot."""
    folder = tmp_path_factory.mktemp("curated")
    workspace = Workspace.create(folder / "workspace")
    rows = [
        {
            "prompt": f"q {n % 150}",
            "chosen": f"good {n} ☕" + "x" * (n % 7),
            "rejected": f"bad\n{n % 500}",
            "id": str(n),
        }
        for n in range(PAIRS)
    ]
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + "{broken\n")
    run_import(workspace, open_import(workspace, ImportConfig(str(file))))
    here = ("-w", str(workspace.root))
    assert run("data", "dedup", *here) == 0
    with fake_endpoint(longer_wins()) as fake:
        endpoint = ("--base-url", fake.base_url, "--model", "fake", "--price-in", "1", "--price-out", "2", *here)
        assert run("judge", "run", "--judge", "openai", *endpoint, "--limit", "12") == 0
    with workspace.store.unit() as db:
        comparisons = [c for (c,) in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]
        responses = [r for (r,) in db.execute("SELECT response_id FROM responses ORDER BY 1").fetchall()]
    vote(workspace, comparisons[:5])
    fold(workspace)
    with start_run(workspace, "curate", {"a": [1]}) as made:
        with workspace.store.unit() as db:
            decide(db, comparisons[:250], made.id)
        with workspace.store.unit() as db:
            decide(db, comparisons[245:250], made.id, pool="silver")
        score(workspace, responses, made.id)
        create_snapshot(workspace, "first", Selection(pools=("gold", "silver")), made.id)
        made.metrics["accuracy"] = float("nan")
    return workspace.root


def vote(workspace: Workspace, comparisons: list[str]) -> None:
    annotator = ids.annotator_id("human", "ann")
    with JournalWriter(workspace.journal) as journal:
        for comparison in comparisons:
            journal.append(Judgment(comparison, annotator, "A", seconds=0.1), annotator="ann")
        journal.withdraw(Judgment(comparisons[0], annotator, "A", seconds=0.1).id, "a slip")


def decide(db: Any, comparisons: list[str], run_id: str | None, pool: Any = "gold") -> None:
    insert_decisions(db, [Decision(c, pool, "A", "test", "because\n☕", margin=0.1) for c in comparisons], run_id)


def score(workspace: Workspace, responses: list[str], run_id: str) -> None:
    """Scores of which some fail, succeed later and get a probability: rows that change."""

    def results(first: float) -> list[Any]:
        return [ScoreFailure("timeout", "late") if n % 9 == 0 and not first else made(n) for n in range(len(responses))]

    def made(number: int) -> Score:
        return Score(number / 7, "m", "v1", template_hash="t", tokens=number, truncated=False)

    for first in (0.0, 1.0):
        with workspace.store.unit() as db:
            insert_scores(
                db,
                zip(responses, results(first), strict=True),
                model="m",
                version="v1",
                template_hash="t",
                run_id=run_id,
            )
    calibration = Calibration(2.0, 0.5, "test", 10)
    record_calibration(workspace, "v1", calibration, run_id)
    assert refresh_probabilities(workspace, "v1", calibration) == len(responses)


@pytest.fixture
def copied(curated: Path, tmp_path: Path) -> Workspace:
    return Workspace.open(shutil.copytree(curated, tmp_path / "workspace"))


@pytest.fixture(scope="module")
def expected(curated: Path) -> dict[str, list[tuple[Any, ...]]]:
    return store_contents(Workspace.open(curated))


def trees(workspace: Workspace) -> list[Any]:
    return [lineage(workspace, "first", direction, depth=8).to_dict() for direction in ("up", "down")]


def test_after_the_file_is_deleted_every_table_comes_back(
    copied: Workspace, expected: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    for table in ("decisions", "model_calls", "scores", "snapshots", "snapshot_items", "judgments", "rejects"):
        assert expected[table], f"nothing to lose in {table}"
    assert any("v1" in row and row[0] for row in expected["calibrations"])
    before = trees(copied)
    copied.store.path.unlink()
    assert run("data", "stats", "-w", str(copied.root)) == 5
    assert "is gone" in (line := capsys.readouterr().err.strip())
    assert "`assay rebuild`" in line
    assert len(line.splitlines()) == 1
    assert not copied.store.path.exists(), "an empty store in its place would hide the loss"
    assert run("rebuild", "-w", str(copied.root)) == 0
    assert store_contents(copied) == expected
    assert trees(copied) == before


def test_a_flipped_byte_is_named_in_one_line_and_rebuild_mends_it(copied: Workspace, expected: dict[str, Any]) -> None:
    whole = copied.store.path.read_bytes()
    chance = random.Random(17)
    # the three headers, and blocks anywhere
    places = [0, 9, 4096 + 20, 8192 + 20, *(chance.randrange(12288, len(whole)) for _ in range(6))]
    messages = []
    for place in places:
        content = bytearray(whole)
        content[place] ^= 0x10
        copied.store.path.write_bytes(content)
        try:
            assert store_contents(copied) == expected, "a byte that nothing is in"
        except BackendError as error:
            messages.append(str(error))
            last = bytes(content)
    assert len(messages) >= 4
    for message in messages:
        assert re.fullmatch(rf"{re.escape(str(copied.store.path))} is damaged: .*; .*`assay rebuild`.*", message)
    copied.store.path.write_bytes(last)
    report = rebuild(copied)
    assert (report.problems, report.old_file is not None) == ([], True)
    assert store_contents(copied) == expected


def test_what_comes_after_a_rebuild_is_logged_as_before(copied: Workspace, expected: dict[str, Any]) -> None:
    rebuild(copied)
    comparison = expected["comparisons"][0][0]
    with copied.store.unit() as db:
        decide(db, [comparison], None, pool="recycled")
        positions = [n for (n,) in db.execute("SELECT position FROM decisions ORDER BY 1").fetchall()]
    assert len(set(positions)) == len(positions) == len(expected["decisions"]) + 1
    after = store_contents(copied)
    copied.store.path.unlink()
    rebuild(copied)
    assert store_contents(copied) == after


KILLED = """
import os, signal, sys
from assay.store import log_writer
from assay.store import database, schema
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
append = log_writer.LogWriter.append
def killed(self, *arguments):
    end = append(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)
log_writer.LogWriter.append = killed
with Workspace.open(sys.argv[1]).store.unit() as db:
    insert_decisions(db, [Decision(c, "recycled", "B", "late", "logged") for c in sys.argv[2:]], None)
"""


@pytest.mark.slow
@pytest.mark.parametrize("lost", [False, True])
def test_killed_between_log_and_commit(copied: Workspace, expected: dict[str, Any], lost: bool) -> None:
    """The unit is complete in the log: with or without the file the store comes to the same state."""
    comparisons = [row[0] for row in expected["comparisons"][:220]]
    child = subprocess.run([sys.executable, "-c", KILLED, str(copied.root), *comparisons], check=False)
    assert child.returncode == -signal.SIGKILL
    if lost:
        copied.store.path.unlink()
        rebuild(copied)
    contents = store_contents(copied)
    added = [row for row in contents["decisions"] if row not in expected["decisions"]]
    assert len(added) == 220
    assert {**contents, "decisions": expected["decisions"]} == expected
    with copied.store.unit() as db:
        decide(db, comparisons[:1], None)
    numbers = [int(row[0]) for row in store_contents(copied)["decisions"]]
    assert len(set(numbers)) == len(numbers), "the sequence went on behind the rows that were applied"


WRITING = """
import sys
from assay.store import database, schema
from assay.store.records import insert_annotator
from assay.workspace import Workspace
store = Workspace.open(sys.argv[1]).store
for number in range(10**9):
    with store.unit() as db:
        for part in range(5):
            insert_annotator(db, "human", f"{number}/{part}")
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_acknowledged_unit(workspace: Workspace) -> None:
    acknowledged: set[int] = set()
    with workspace.store.unit():
        pass
    for seconds in (0.0, 0.003, 0.007, 0.013):
        workspace.store.path.unlink()
        rebuild(workspace)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITING, str(workspace.root)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        acknowledged |= {int(line) for line in lines if line.endswith("\n")}
    alive = store_contents(workspace)["annotators"]
    workspace.store.path.unlink()
    rebuild(workspace)
    assert store_contents(workspace)["annotators"] == alive
    names = {row[2] for row in alive}
    assert {f"{number}/{part}" for number in acknowledged for part in range(5)} <= names
    assert len(names) % 5 == 0


def test_a_torn_last_line_of_the_log_is_cut_off(copied: Workspace, expected: dict[str, Any]) -> None:
    file = copied.store.log.files()[-1]
    with file.open("ab") as stream:
        stream.write(b' {"check":"0123","unit":{"number":9999,"tab')
    assert store_contents(copied) == expected
    assert file.read_bytes().endswith(b"}}\n")
    with copied.store.unit() as db:
        decide(db, [expected["comparisons"][0][0]], None, pool="recycled")
    after = store_contents(copied)
    copied.store.path.unlink()
    with file.open("ab") as stream:
        stream.write(b' {"check"')
    assert rebuild(copied).problems == []
    assert store_contents(copied) == after


@pytest.mark.parametrize("part", ["line", "segment", "missing segment"])
def test_damage_in_the_log_costs_what_is_damaged_and_is_named(
    copied: Workspace, expected: dict[str, Any], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = copied.store.log
    if part == "line":
        file = log.files()[0]
        lines = file.read_bytes().split(b"\n")
        number = next(n for n, line in enumerate(lines) if b'"snapshots"' in line)
        lines[number] = lines[number].replace(b"first", b"fjrst")
        file.write_bytes(b"\n".join(lines))
        lost = {"snapshots", "snapshot_items", "run_links"}
    else:
        (file,) = log.segments.glob("*-snapshot_items.parquet")
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        if part == "missing segment":
            file.unlink()
        lost = {"snapshot_items"}
    copied.store.path.unlink()
    assert run("rebuild", "-w", str(copied.root)) == 1
    printed = capsys.readouterr().out
    assert printed.count("not readable: ") == 1
    assert file.name in printed
    contents = store_contents(copied)
    assert {table for table in expected if contents[table] != expected[table]} == lost


def test_a_unit_that_the_disk_refused_is_in_neither(copied: Workspace, expected: dict[str, Any]) -> None:
    blocked = copied.store.path.with_name("assay.duckdb.wal")
    refused = pytest.raises(BackendError, match="not stored")
    with refused, copied.store.unit() as db:
        blocked.mkdir()  # stands for a disk that takes no more
        decide(db, [row[0] for row in expected["comparisons"]], None)
    blocked.rmdir()
    assert store_contents(copied) == expected
    copied.store.path.unlink()
    rebuild(copied)
    assert store_contents(copied) == expected


def test_a_unit_that_was_committed_though_the_disk_complained_is_in_both(
    copied: Workspace, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB may fail behind the commit, when it moves its own log into the file."""

    def commit_and_fail(connection: Any, capture: Any, writer: Any) -> None:
        end = writer.append(connection, capture)
        connection.execute("COMMIT")
        writer.take_back(end)
        raise duckdb.IOException("No space left on device")

    refused = pytest.raises(BackendError, match="not stored")
    with monkeypatch.context() as failing, refused:
        failing.setattr(database, "_commit", commit_and_fail)
        with copied.store.unit() as db:
            decide(db, [row[0] for row in expected["comparisons"]], None, pool="recycled")
    contents = store_contents(copied)
    assert contents["decisions"] != expected["decisions"]
    copied.store.path.unlink()
    rebuild(copied)
    assert store_contents(copied) == contents


def test_a_store_from_before_the_log_gets_one(copied: Workspace, expected: dict[str, Any]) -> None:
    with copied.store.unit() as db:
        db.execute("DROP TABLE log_position")
        shutil.rmtree(copied.store.log.folder)
        db.execute('CREATE TABLE log_position (number BIGINT, file VARCHAR, "offset" BIGINT, migrations VARCHAR)')
    with copied.store.unit():
        pass
    copied.store.path.unlink()
    assert rebuild(copied).problems == []
    assert store_contents(copied) == expected


def test_the_log_is_written_anew_from_a_sound_store(copied: Workspace, expected: dict[str, Any]) -> None:
    log = copied.store.log
    log.files()[0].write_bytes(b"nonsense\n")
    with pytest.raises(BackendError, match="`assay rebuild --log`"):
        store_contents(copied)
    assert run("rebuild", "--log", "-w", str(copied.root)) == 0
    assert len(log.files()) == 1
    assert store_contents(copied) == expected
    copied.store.path.unlink()
    assert rebuild(copied).problems == []
    assert store_contents(copied) == expected


def test_an_older_copy_of_the_file_catches_up(copied: Workspace, expected: dict[str, Any], tmp_path: Path) -> None:
    older = shutil.copy(copied.store.path, tmp_path / "older.duckdb")
    for _ in range(3):
        with copied.store.unit() as db:
            decide(db, [row[0] for row in expected["comparisons"][:210]], None, pool="recycled")
            db.execute("UPDATE runs SET error = 'changed'")
    latest = store_contents(copied)
    assert latest != expected
    shutil.copy(older, copied.store.path)
    assert store_contents(copied) == latest


def test_any_statement_that_changes_rows_is_logged(copied: Workspace) -> None:
    with copied.store.unit() as db:
        db.execute("DELETE FROM decisions WHERE position % 2 = 0")
        db.execute("UPDATE annotators SET name = name || '!'")
        db.execute("INSERT INTO loops (loop, config) VALUES ('l', '{}')")
        db.execute("UPDATE loops SET config = '{\"a\": 1}'")
        db.executemany("INSERT INTO principles VALUES (?, ?, NULL)", [["n-1", "kind"], ["n-2", "brief"]])
        db.execute("INSERT OR REPLACE INTO principles VALUES ('n-1', 'kinder', NULL)")
        db.execute("UPDATE scores SET uncertainty = 0.5 WHERE tokens < 20")
        assert db.execute("UPDATE scores SET uncertainty = 0.25 WHERE tokens < 10").fetchone() == (10,)
    before = store_contents(copied)
    copied.store.path.unlink()
    rebuild(copied)
    assert store_contents(copied) == before


def test_votes_that_only_the_journal_has_come_back(copied: Workspace, expected: dict[str, Any]) -> None:
    """Waiting ones, and those that were put into a store whose log is gone since."""
    vote(copied, [row[0] for row in expected["comparisons"][20:25]])
    assert rebuild(copied).votes == 5
    with copied.store.unit() as db:
        (votes,) = db.execute(
            "SELECT count(*) FROM judgments JOIN annotators USING (annotator_id) WHERE name = 'ann'"
        ).fetchone() or (0,)
    assert votes == 10


HOLDING = """
import sys
from assay.workspace import Workspace
with Workspace.open(sys.argv[1]).store.unit():
    print(1, flush=True)
    sys.stdin.read()
"""


def test_no_second_process_gets_in(copied: Workspace) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(copied.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"1\n"
    with pytest.raises(BusyError, match="held by another process"):
        rebuild(copied)
    holder.communicate()


def test_a_migration_is_repeated_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of an older Assay, upgraded later: its rows go through the same migrations in the same order."""
    shipped = dict(migrations())
    with monkeypatch.context() as older:
        older.setattr(schema, "migrations", lambda: {n: text for n, text in shipped.items() if n < 6})
        workspace = Workspace.create(tmp_path / "workspace")
        with workspace.store.unit() as db:
            db.execute("INSERT INTO embeddings VALUES ('r-1', 'e', [1.5], NULL)")
    monkeypatch.setattr(
        schema, "migrations", lambda: {**shipped, 9999: "UPDATE embeddings SET digest = 'of the migration'"}
    )
    with workspace.store.unit() as db:
        db.execute("INSERT INTO embeddings VALUES ('r-2', 'e', [2.5], NULL, 'its own')")
    before = store_contents(workspace)
    assert [row[-1] for row in before["embeddings"]] == ["of the migration", "its own"]
    workspace.store.path.unlink()
    assert rebuild(workspace).problems == []
    assert store_contents(workspace) == before
    monkeypatch.undo()
    workspace.store.path.unlink()
    with pytest.raises(BadInputError, match=r"schema version 9999.*upgrade Assay"):
        rebuild(workspace)
