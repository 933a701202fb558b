"""Replies that are kept as long as the store is as it was: never an old one after a write, never two at once."""

from __future__ import annotations

import os
import threading
import time

import pytest

from assay.workspace import Workspace
from assay_web.curate import reply_cache as module
from assay_web.curate.reply_cache import ReplyCache, state_of


@pytest.fixture(autouse=True)
def written_long_ago(workspace: Workspace) -> None:
    """What is read within a tick of a write is not kept: the workspace may be a moment old."""
    for file in workspace.root.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))


def test_a_reply_is_made_again_once_something_was_written(workspace: Workspace) -> None:
    made: list[int] = []

    def make() -> int:
        with workspace.store.unit() as db:
            made.append(len(db.execute("FROM annotators").fetchall()))
        return made[-1]

    kept = ReplyCache(workspace)
    assert [kept.reply("people", make) for _ in range(3)] == [0, 0, 0]
    assert len(made) == 1
    with workspace.store.unit() as db:
        db.execute("INSERT INTO annotators (annotator_id, kind, name, config) VALUES ('x', 'human', 'ann', '{}')")
    assert kept.reply("people", make) == 1
    assert kept.reply("others", lambda: "another key") == "another key"
    (workspace.journal / "votes-1.jsonl").write_text("{}\n")
    kept.reply("people", make)
    assert len(made) == 3, "votes that are not in the store yet change what is said, too"


def test_what_is_written_while_a_reply_is_made_makes_it_an_old_one(workspace: Workspace) -> None:
    kept = ReplyCache(workspace)
    journal = workspace.journal / "votes-1.jsonl"

    def written_meanwhile() -> str:
        journal.write_text("{}\n")
        return "before"

    assert kept.reply("key", written_meanwhile) == "before"
    assert kept.reply("key", lambda: "after") == "after"


def test_reading_leaves_the_state_as_it_is(workspace: Workspace) -> None:
    with workspace.store.unit() as db:
        db.execute("CREATE OR REPLACE TEMP TABLE own AS SELECT 1")
    before = state_of(workspace)
    with workspace.store.unit() as db:
        db.execute("CREATE OR REPLACE TEMP TABLE own AS SELECT 2")
    assert state_of(workspace) == before


def test_two_that_ask_at_once_wait_for_one_answer(workspace: Workspace) -> None:
    kept, made, said = ReplyCache(workspace), [], []

    def slowly() -> int:
        time.sleep(0.2)
        made.append(1)
        return len(made)

    threads = [threading.Thread(target=lambda: said.append(kept.reply("key", slowly))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [1, 1, 1, 1]


def test_few_replies_are_kept(workspace: Workspace) -> None:
    kept = ReplyCache(workspace)
    for number in range(module.MOST + 1):
        kept.reply(number, lambda n=number: n)  # type: ignore[misc]
    assert kept.reply(0, lambda: "made again") == "made again"
    assert kept.reply(module.MOST, lambda: -1) == module.MOST


def test_a_reply_of_the_tick_in_which_something_was_written_is_not_kept(workspace: Workspace) -> None:
    """A second write of as many bytes within it has the same size and time."""
    kept, journal = ReplyCache(workspace), workspace.journal / "votes-1.jsonl"
    journal.write_text("old\n")
    now = time.time_ns() + 3_600_000_000_000  # for as long as this test takes
    os.utime(journal, ns=(now, now))
    assert kept.reply("key", journal.read_text) == "old\n"
    journal.write_text("new\n")
    os.utime(journal, ns=(now, now))
    assert kept.reply("key", journal.read_text) == "new\n"
    os.utime(journal, ns=(0, 0))
    assert kept.reply("key", journal.read_text) == "new\n"
    assert kept.reply("key", lambda: "made again") == "new\n"


def test_requests_that_are_refused_leave_nothing(workspace: Workspace) -> None:
    def refused() -> None:
        raise ValueError("no such pool")

    kept = ReplyCache(workspace)
    for number in range(3):
        with pytest.raises(ValueError, match="no such pool"):
            kept.reply(number, refused)
    assert not kept._making
