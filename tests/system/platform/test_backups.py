"""A copy of a workspace that others work in, put back: whole, checked, of the right version."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from store_contents import store_contents
from typed_rows import PICTURE, PLAIN, take

from assay import ids
from assay.annotation.vote_journal import JournalWriter
from assay.backups.backup import back_up
from assay.backups.manifest import MANIFEST, backups_in, read_manifest
from assay.backups.restoring import restore
from assay.cli.main import main
from assay.domain import Judgment
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.store import schema
from assay.store.media import missing_media
from assay.store.records import insert_annotator
from assay.workspace import Workspace


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def fill(workspace: Workspace, first: int, number: int = 300) -> None:
    """Rows of which the log has a segment, and one vote that waits in the journal."""
    with workspace.store.unit() as db:
        db.execute(
            "INSERT INTO principles SELECT 'n-' || n, 'statement ' || n, NULL FROM range(?, ?) r(n)",
            [first, first + number],
        )
    with JournalWriter(workspace.journal) as journal:
        annotator = ids.annotator_id("human", "ann")
        journal.append(Judgment(f"c-{first}", annotator, "A"), annotator="ann")


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    fill(workspace, 0)
    (workspace.models / "rm").mkdir()
    (workspace.models / "rm" / "model.safetensors").write_bytes(os.urandom(100_000))
    with closing(sqlite3.connect(workspace.root / "access.sqlite")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE accounts (name TEXT)")
        db.execute("INSERT INTO accounts VALUES ('ada')")
        db.commit()
    return workspace


@pytest.mark.slow
def test_images_are_backed_up_verified_restored_and_rebuilt(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [dict(row) for row in (PICTURE, PLAIN)]
    take(workspace, tmp_path / "rows.jsonl", *rows)
    (image,) = (path.relative_to(workspace.root) for path in workspace.root.glob("media/*/*"))
    to, back = tmp_path / "copies", tmp_path / "back"
    assert run("backup", "--to", str(to), "-w", str(workspace.root)) == 0
    assert run("backup", "verify", str(to)) == 0
    assert run("restore", str(to), str(back)) == 0
    restored = Workspace.open(back)
    assert (back / image).read_bytes() == (workspace.root / image).read_bytes()
    for table in ("prompts", "responses", "comparisons", "media"):
        assert store_contents(restored)[table] == store_contents(workspace)[table], table
    with restored.store.unit() as db:
        assert missing_media(db, restored.media) == []
    assert run("rebuild", "-w", str(back)) == 0
    assert store_contents(restored)["media"] == store_contents(workspace)["media"]
    (copy,) = (path for path in to.rglob(image.name))
    content = copy.read_bytes()
    for damage in (lambda: copy.write_bytes(content[:-1] + b"x"), copy.unlink):
        copy.parent.chmod(0o700)
        copy.chmod(0o600)
        damage()
        capsys.readouterr()
        assert run("backup", "verify", str(to)) != 0
        said = capsys.readouterr()
        assert image.name in said.out + said.err


def test_backup_verify_and_restore_by_command(
    filled: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, back = tmp_path / "copies", tmp_path / "back"
    assert run("backup", "--to", str(to), "-w", str(filled.root)) == 0
    assert run("backup", "verify", str(to)) == 0
    assert "all as they were copied" in capsys.readouterr().out
    assert run("restore", str(to), str(back)) == 0
    restored = Workspace.open(back)
    votes = store_contents(restored)["judgments"]
    assert [row[1] for row in votes] == ["c-0"], "the vote that was waiting"
    assert store_contents(restored)["principles"] == store_contents(filled)["principles"]
    name = "models/rm/model.safetensors"
    assert (back / name).read_bytes() == (filled.root / name).read_bytes()
    with closing(sqlite3.connect(back / "access.sqlite")) as db:
        assert db.execute("SELECT name FROM accounts").fetchall() == [("ada",)]
    assert run("restore", str(to), str(back)) == 2
    assert "is not empty" in capsys.readouterr().err
    fill(restored, 1000)  # it is a workspace like any other
    assert run("backup", "-w", str(back)) == 0
    assert run("backup", "list", "-w", str(back)) == 0


def test_every_flipped_byte_of_a_backup_is_named(
    filled: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = back_up(filled, tmp_path / "copies")
    for file in made.manifest.files:
        path = made.folder / file.path
        content = path.read_bytes()
        if not content:
            continue
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert run("backup", "verify", str(made.folder)) == 1
        assert file.path in capsys.readouterr().out
        with pytest.raises(BackendError, match="is damaged"):
            restore(made.folder, tmp_path / "back")
        path.write_bytes(content)
    assert not (tmp_path / "back").exists()
    assert run("backup", "verify", str(made.folder)) == 0


def test_a_second_backup_shares_what_has_not_changed_and_old_ones_go(filled: Workspace, tmp_path: Path) -> None:
    to = tmp_path / "copies"
    first = back_up(filled, to)
    fill(filled, 5000)
    second = back_up(filled, to, keep=2)
    assert 100_000 < second.linked < second.manifest.size
    assert (second.removed, len(backups_in(to))) == ((), 2)
    third = back_up(filled, to, keep=2)
    assert third.removed == (first.folder,)
    assert backups_in(to) == [second.folder, third.folder]
    restored, _ = restore(third.folder, tmp_path / "back")
    assert store_contents(restored)["principles"] == store_contents(filled)["principles"]
    with pytest.raises(BadInputError, match="at least one"):
        back_up(filled, to, keep=0)


WRITER = """
import sys
from assay import ids
from assay.annotation.vote_journal import JournalWriter, fold
from assay.domain import Judgment
from assay.store.records import insert_annotator
from assay.workspace import Workspace
workspace = Workspace.open(sys.argv[1])
annotator = ids.annotator_id("human", "ann")
for number in range(10**9):
    with workspace.store.unit() as db:
        insert_annotator(db, "human", f"{number}/a")
        insert_annotator(db, "human", f"{number}/b")
        db.execute("INSERT INTO principles SELECT $n || '-' || i, 'x', NULL FROM range(250) r(i)", {"n": str(number)})
    with JournalWriter(workspace.journal) as journal:
        journal.append(Judgment(f"c-{number}", annotator, "A"), annotator="ann")
    print(number, flush=True)
    if number % 3 == 0:
        fold(workspace)
"""


def test_a_copy_made_while_others_write_has_all_that_was_acknowledged_before_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(workspace.root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for round_ in range(2):
            acknowledged = [int(process.stdout.readline()) for _ in range(4)][-1]
            made = back_up(workspace, tmp_path / "copies")
            restored, report = restore(made.folder, tmp_path / f"back-{round_}")
            assert report.problems == []
            contents = store_contents(restored)
            names = {row[2] for row in contents["annotators"]}
            assert {f"{n}/{side}" for n in range(acknowledged + 1) for side in "ab"} <= names
            units = {row[0].split("-")[0] for row in contents["principles"]}
            assert len(contents["principles"]) == 250 * len(units), "units are whole"
            assert {f"c-{n}" for n in range(acknowledged + 1)} <= {row[1] for row in contents["judgments"]}
    finally:
        process.kill()
        process.communicate()


BACKING_UP = """
import sys
import time
from pathlib import Path
from assay.backups.backup import back_up
from assay.workspace import Workspace
workspace = Workspace.open(sys.argv[1])


def hold(copied):
    print(copied, flush=True)
    time.sleep(600)  # the test kills it here, between two files


back_up(workspace, Path(sys.argv[2]), advance=hold)
"""


def test_a_killed_backup_is_none(filled: Workspace, tmp_path: Path) -> None:
    to = tmp_path / "copies"
    process = subprocess.Popen(
        [sys.executable, "-c", BACKING_UP, str(filled.root), str(to)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline(), "a file is copied"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert backups_in(to) == []
    (partial,) = to.iterdir()
    old = time.time() - 100_000
    os.utime(partial, (old, old))
    back_up(filled, to)
    assert len(list(to.iterdir())) == 1, "what the killed one left is gone"


def test_a_newer_backup_is_refused_and_an_older_one_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = dict(schema.migrations())
    with monkeypatch.context() as older:
        older.setattr(schema, "migrations", lambda: {n: text for n, text in shipped.items() if n < 6})
        workspace = Workspace.create(tmp_path / "workspace")
        with workspace.store.unit() as db:
            db.execute("INSERT INTO embeddings VALUES ('r-1', 'e', [1.5], NULL)")
        made = back_up(workspace, tmp_path / "copies")
    restored, _ = restore(made.folder, tmp_path / "back")
    assert store_contents(restored)["embeddings"] == [("r-1", "e", "[1.5]", None, None)]
    with restored.store.unit() as db:
        insert_annotator(db, "human", "ann")
    for change, message in (({"migrations": [9999]}, "schema version 9999"), ({"format": 2}, "backup format 2")):
        payload: dict[str, Any] = json.loads((made.folder / MANIFEST).read_text())
        (made.folder / MANIFEST).write_text(json.dumps(payload | change))
        with pytest.raises(BadInputError, match=f"{message}.*upgrade Assay"):
            restore(made.folder, tmp_path / "newer")
        (made.folder / MANIFEST).write_text(json.dumps(payload))
    assert not (tmp_path / "newer").exists()


def test_what_is_no_backup_or_leaves_the_workspace_is_refused(filled: Workspace, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is not a backup"):
        read_manifest(tmp_path)
    made = back_up(filled, tmp_path / "copies")
    payload = json.loads((made.folder / MANIFEST).read_text())
    payload["files"][0]["path"] = "../outside"
    (made.folder / MANIFEST).write_text(json.dumps(payload))
    with pytest.raises(BadInputError, match="leaves the workspace"):
        restore(made.folder, tmp_path / "back")
    (made.folder / MANIFEST).write_text("{")
    with pytest.raises(BadInputError, match="not readable"):
        restore(made.folder, tmp_path / "back")


def test_a_store_that_is_lost_or_held_is_backed_up_all_the_same(filled: Workspace, tmp_path: Path) -> None:
    expected = store_contents(filled)
    with filled.store.unit():
        back_up(filled, tmp_path / "held")
    filled.store.path.unlink()
    made = back_up(filled, tmp_path / "lost")
    restored, _ = restore(made.folder, tmp_path / "back")
    assert store_contents(restored)["principles"] == expected["principles"]


def test_damage_in_the_log_is_said_instead_of_copied(filled: Workspace, tmp_path: Path) -> None:
    file = filled.store.log.files()[0]
    file.write_bytes(file.read_bytes().replace(b'"number":2', b'"number":3', 1))
    with pytest.raises(BackendError, match="`assay rebuild --log`"):
        back_up(filled, tmp_path / "copies")
    assert backups_in(tmp_path / "copies") == []
    assert run("rebuild", "--log", "-w", str(filled.root)) == 0
    shutil.rmtree(tmp_path / "copies")
    assert back_up(filled, tmp_path / "copies").manifest.files
