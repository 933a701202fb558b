"""What `assay doctor` says of a workspace that has lost something, and what to do."""

from __future__ import annotations

import pytest
from shard_jobs import squares, tables
from typer.testing import CliRunner

from assay import ids
from assay.annotation.vote_journal import JournalWriter
from assay.backups.backup import back_up
from assay.cli.main import build_app
from assay.compute.stage import abandoned_stages, open_stage, remove_stage
from assay.doctor import Check, examine
from assay.domain import Judgment
from assay.errors import BadInputError
from assay.workspace import Workspace


def checks(workspace: Workspace) -> dict[str, Check]:
    return {check.name: check for check in examine(workspace)}


def vote_on_nothing(workspace: Workspace, number: int) -> None:
    annotator = ids.annotator_id("human", "ann")
    with JournalWriter(workspace.journal) as journal:
        for n in range(number):
            journal.append(Judgment(f"c-{n:02}", annotator, "A"), annotator="ann")


@pytest.mark.slow
def test_votes_that_point_nowhere_are_named_in_the_very_run_that_stores_them(workspace: Workspace) -> None:
    vote_on_nothing(workspace, 50)
    found = checks(workspace)
    assert found["journal"].detail == "50 waiting votes put into the store"
    assert found["references"].state == "problem"
    assert "50 in judgments.comparison_id (c-00, c-01, c-02, ...)" in found["references"].detail
    for remedy in ("import", "assay rebuild", "restore a backup"):
        assert remedy in found["references"].fix
    assert checks(workspace)["references"].state == "problem"


def test_a_flipped_byte_is_one_line_with_the_remedy(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        db.execute(
            """INSERT INTO responses (response_id, prompt_id, content)
               SELECT 'r-' || n, 'p', repeat('text ' || n, 9) FROM range(20000) r(n)"""
        )
    path = workspace.store.path
    content = bytearray(path.read_bytes())
    place = content.index(b"text 777text 777")
    content[place] ^= 1
    path.write_bytes(content)
    damaged = checks(workspace)["workspace"]
    assert damaged.state == "problem"
    assert str(path) in damaged.detail
    assert "is damaged" in damaged.detail
    assert "`assay rebuild`" in damaged.detail
    assert "\n" not in damaged.detail


def test_a_damaged_log_is_named_while_the_store_is_sound(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        db.execute("INSERT INTO principles SELECT 'n-' || n, 'x', NULL FROM range(500) r(n)")
    assert checks(workspace)["log"].state == "ok"
    (segment,) = workspace.store.log.segments.iterdir()
    segment.unlink()
    missing = checks(workspace)["log"]
    assert (missing.state, missing.detail) == ("problem", f"{segment.name} is gone")
    assert "assay rebuild --log" in missing.fix


def test_backups_are_shown(workspace: Workspace) -> None:
    assert checks(workspace)["backups"].state == "optional"
    made = back_up(workspace)
    assert made.folder.name in checks(workspace)["backups"].detail


@pytest.mark.slow
def test_interrupted_stages_are_named_and_removed_but_none_in_use(workspace: Workspace) -> None:
    assert checks(workspace)["stages"].state == "ok"
    with pytest.raises(KeyboardInterrupt), open_stage(workspace, "left", squares(), {}, lambda: tables(2)) as left:
        raise KeyboardInterrupt
    with open_stage(workspace, "busy", squares(), {}, lambda: tables(2)) as busy:
        assert list(abandoned_stages(workspace)) == [left.folder]
        found = checks(workspace)["stages"]
        assert found.state == "optional"
        assert f"1 interrupted stage: {left.folder.name} (0.0 MB)" in found.detail
        assert "assay doctor --remove-stages" in found.fix
        with pytest.raises(BadInputError, match="it is in use"):
            remove_stage(busy.folder)
        result = CliRunner().invoke(build_app(), ["doctor", "--remove-stages", "--workspace", str(workspace.root)])
        assert "stages: no interrupted bulk work" in result.output
        assert (left.folder.exists(), busy.folder.exists()) == (False, True)
