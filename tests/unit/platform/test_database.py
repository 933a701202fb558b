"""The store's file: migrations, units of work, waiting for the process that holds it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from assay import store
from assay.errors import BackendError, BadInputError, BusyError
from assay.store import database
from assay.store.database import SILENCE_S, Database, registered
from assay.store.schema import migrate, migrations
from assay.workspace import Workspace

HOLDER = """
import sys
from assay.store import Database
from pathlib import Path
with Database(Path(sys.argv[1])).unit():
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_every_migration_file_is_applied(tmp_path: Path) -> None:
    """Two files of one number would leave one of them out."""
    files = sorted((Path(store.__file__).parent / "migrations").glob("*.sql"))
    assert len(migrations()) == len(files)
    with Database(tmp_path / "new.duckdb").unit() as db:
        db.execute("SELECT basis FROM decisions")
        db.execute("SELECT project FROM queues")


def test_migrations_from_an_empty_file(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "new.duckdb")) as db:
        assert migrate(db) == sorted(migrations())
        assert migrate(db) == []
        assert db.execute("SELECT count(*) FROM pools").fetchall() == [(0,)]


def test_a_store_of_a_newer_assay_is_refused(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        db.execute("INSERT INTO schema_migrations VALUES (9999, now())")
    with pytest.raises(BadInputError, match=r"schema version 9999.*upgrade Assay"), workspace.store.unit():
        pass


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "x.duckdb").write_text("hello " * 5000)
    with pytest.raises(Exception, match=r"x\.duckdb") as caught, Database(tmp_path / "x.duckdb").unit():
        pass
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_not_held_whatever_its_folder_is_called(tmp_path: Path) -> None:
    file = tmp_path / "wedlock" / "x.duckdb"
    file.parent.mkdir()
    file.write_text("hello " * 5000)
    with pytest.raises(BackendError, match="cannot open"), Database(file, wait=0.2).unit():
        pass


def test_an_exception_rolls_the_unit_back(workspace: Workspace) -> None:
    with pytest.raises(ZeroDivisionError), workspace.store.unit() as db:  # noqa: PT012
        db.execute("INSERT INTO principles VALUES ('x', 'y', NULL)")
        raise ZeroDivisionError
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(*) FROM principles").fetchall() == [(0,)]


def test_waiting_for_the_process_that_holds_the_file(workspace: Workspace) -> None:
    path = workspace.store.path
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=rf"process {holder.pid}\); waited 0.2 s"), Database(path, wait=0.2).unit():
            pass
        holder.stdin.write("\n")
        holder.stdin.flush()
        with Database(path, wait=60).unit() as db:
            assert db.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
    finally:
        holder.stdin.close()
        holder.wait(timeout=240)
        holder.stdout.close()


class Clock:
    """In place of `time`: goes on by what is slept, once `threads` threads have asked for the time."""

    def __init__(self, threads: int = 1) -> None:
        self.seconds, self._asked = 0.0, set[int]()
        self._threads, self._all = threads, threading.Event()

    def monotonic(self) -> float:
        self._asked.add(threading.get_ident())
        if len(self._asked) >= self._threads:
            self._all.set()
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert self._all.wait(120)
        self.seconds += seconds


def test_a_long_wait_is_said(
    workspace: Workspace, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "time", Clock())
    path = workspace.store.path
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError), Database(path, wait=SILENCE_S + 1).unit():
            pass
        holder.communicate("\n")
    (said,) = caplog.messages
    assert f"process {holder.pid}" in said


def test_threads_that_take_turns_do_not_wait_one_after_the_other(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, many, wait = workspace.store.path, 8, 5.0
    clock = Clock(many)
    monkeypatch.setattr(database, "time", clock)

    def refused(_: int) -> None:
        with pytest.raises(BusyError), Database(path, wait=wait).unit():
            pass

    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with ThreadPoolExecutor(many) as pool:
            list(pool.map(refused, range(many)))
        holder.communicate("\n")
    assert wait <= clock.seconds < 2 * wait


def test_a_unit_within_a_unit_is_refused(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        with pytest.raises(BusyError, match="open elsewhere in this process"), workspace.store.unit():
            pass
        assert db.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


def test_threads_with_their_own_objects_take_turns(workspace: Workspace) -> None:
    def count(_: int) -> None:
        for _round in range(5):
            with Database(workspace.store.path).unit() as db:
                db.execute("""INSERT INTO run_links SELECT 'run', 'input', 'n', count(*)::VARCHAR FROM run_links""")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    with workspace.store.unit() as db:
        assert db.execute("SELECT count(DISTINCT ref) FROM run_links").fetchall() == [(20,)]


def test_registering_beside_an_open_result(workspace: Workspace) -> None:
    table = pa.table({"x": [1]})
    with workspace.store.unit() as db:
        db.execute("SELECT 1").fetchone()
        with registered(db, "incoming", table):
            assert db.execute("SELECT x FROM incoming").fetchall() == [(1,)]
        db.execute("SELECT * FROM range(10)").fetchone()
        with pytest.raises(duckdb.ResourceInUseException), registered(db, "incoming", table):
            pass
