"""What is kept between units of work: no file, no setting, nothing of a unit that failed or spilled."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.errors import BackendError, BadInputError
from assay.store import instances
from assay.store.database import Database
from assay.workspace import Workspace
from assay_serving.server.cache.disk_cache import DiskScoreCache

#: Settings of the instance, that a unit leaves to the next.
SETTINGS = """SELECT current_setting('memory_limit'), current_setting('threads'),
    current_setting('preserve_insertion_order')"""
OTHER_PROCESS = (
    "import duckdb, sys; print(duckdb.connect(sys.argv[1]).execute('SELECT count(*) FROM principles').fetchall())"
)
SORTED = """CREATE TEMP TABLE sorted AS
    SELECT hash(range) AS key, repeat('x', 40) || range AS text FROM range(400000) ORDER BY 1"""


@pytest.fixture(autouse=True)
def none_before(monkeypatch: pytest.MonkeyPatch) -> None:
    instances.close_idle()
    monkeypatch.setattr(instances, "LONG_S", 60.0)  # a busy machine makes no unit long


def kept() -> list[int]:
    return [id(instance) for instance in instances.IDLE]


def test_the_next_unit_has_the_same_instance_whatever_its_file(workspace: Workspace, tmp_path: Path) -> None:
    other = Workspace.create(tmp_path / "other's")
    seen = []
    for store in (workspace.store, other.store, workspace.store):
        with store.unit() as db:
            assert instances.IDLE == []
            files = db.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
            assert files == [(str(store.path),)]
        seen += kept()
    assert len(seen) == 3
    assert len(set(seen)) == 1


def test_between_units_another_process_finds_what_was_committed(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        db.execute("INSERT INTO principles VALUES ('x', 'y', NULL)")
    assert kept()
    assert not workspace.store.path.with_name("assay.duckdb.wal").exists(), "the log is in the file"
    command = [sys.executable, "-c", OTHER_PROCESS, str(workspace.store.path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[(1,)]\n"


def test_a_unit_has_its_own_settings_and_nothing_of_the_last_one(workspace: Workspace) -> None:
    path = workspace.store.path
    with Database(path).unit() as db:
        expected = db.execute(SETTINGS).fetchall()
    with Database(path, memory_limit="300MB", threads=1).unit() as db:
        assert db.execute(SETTINGS).fetchall() == [("286.1 MiB", 1, False)]
        db.execute("SET GLOBAL preserve_insertion_order = true")
        db.execute("SET VARIABLE left_over = 1")
        db.execute("CREATE TEMP TABLE left_over AS SELECT 1")
        db.execute("CREATE MACRO store.main.kept_by_the_file() AS 7")
    with Database(path).unit() as db:
        assert db.execute(SETTINGS).fetchall() == expected
        assert db.execute("SELECT getvariable('left_over'), current_setting('TimeZone')").fetchall() == [(None, "UTC")]
        assert db.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'left_over'").fetchall() == [(0,)]
        assert db.execute("SELECT kept_by_the_file()").fetchall() == [(7,)]


def test_after_a_unit_that_failed_the_next_one_begins_anew(workspace: Workspace) -> None:
    with workspace.store.unit():
        pass
    with pytest.raises(ZeroDivisionError), workspace.store.unit():
        raise ZeroDivisionError
    assert not kept()
    with pytest.raises(BackendError), Database(workspace.root / "none" / "x.duckdb").unit():
        pass
    assert not kept()


def test_a_folder_that_takes_no_log_is_said_and_nothing_is_stored(workspace: Workspace, tmp_path: Path) -> None:
    log = workspace.store.path.with_name("assay.duckdb.wal")
    refused = pytest.raises(BackendError, match=r"Cannot open file .*not stored")
    with refused, workspace.store.unit() as db:
        log.mkdir()  # stands for a folder that may not be written to
        db.execute("INSERT INTO principles VALUES ('x', 'y', NULL)")
    log.rmdir()
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM principles").fetchall() == [(0,)]
    # While the first migration is applied: DuckDB looks for the log of such a path elsewhere.
    (tmp_path / "a?b").mkdir()
    with pytest.raises(BackendError, match="Cannot open file"), Database(tmp_path / "a?b" / "assay.duckdb").unit():
        pass


@pytest.mark.parametrize("name", ["a#b", "a%20b", "a'b;c", "[a]*", "ä b"])
def test_a_folder_may_have_nearly_any_name(tmp_path: Path, name: str) -> None:
    made = Workspace.create(tmp_path / name)
    with made.store.unit() as db:
        db.execute("CREATE TABLE own AS SELECT 1 AS a")
    with Workspace.open(tmp_path / name).store.unit() as db:
        assert db.execute("FROM own").fetchall() == [(1,)]


def test_a_folder_that_duckdb_cannot_open_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """DuckDB would look for the log of `what?/assay.duckdb` at `what.wal?/assay.duckdb`."""
    folder = tmp_path / "what?"
    with pytest.raises(BadInputError, match=r"\? in its path"):
        Workspace.create(folder / "workspace")
    assert not folder.exists()
    Workspace.create(tmp_path / "what").root.rename(folder)
    (tmp_path / "link").symlink_to(folder)
    for path in (folder, tmp_path / "link"):
        with pytest.raises(BadInputError, match="rename it or choose another"):
            Workspace.open(path)
    with pytest.raises(BadInputError, match=r"\? in its path"):
        DiskScoreCache.open(folder / "cache", max_rows=10)


def test_an_instance_that_spilled_ends_before_another_process_may_spill(workspace: Workspace) -> None:
    path, spill = workspace.store.path, workspace.root / "spilled"
    with Database(path, memory_limit="40MB", threads=1, spill=spill).unit() as db:
        db.execute(SORTED)
        assert list(spill.iterdir())
    assert not spill.exists()
    assert not kept()


def test_a_long_unit_gives_its_memory_back(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "LONG_S", 0.1)
    with workspace.store.unit():
        begun = time.process_time()
        while time.process_time() - begun < 0.11:
            pass
    assert not kept()


FORKING = """
import os, sys
from assay.store import instances
from assay.workspace import Workspace
workspace = Workspace.open(sys.argv[1])
with workspace.store.unit():
    pass
assert instances.IDLE
if os.fork() == 0:
    with workspace.store.unit() as db:
        db.execute("INSERT INTO principles VALUES ('of the child', 'y', NULL)")
    instances.close_idle()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
with workspace.store.unit() as db:
    assert db.execute("SELECT principle_id FROM principles").fetchall() == [("of the child",)]
"""


def test_a_forked_child_opens_the_store_and_ends(workspace: Workspace) -> None:
    """In a process of its own: this one has threads, which may hold a lock that the child would wait for."""
    done = subprocess.run([sys.executable, "-c", FORKING, str(workspace.root)], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
