"""No vote is lost or counted twice: the server killed under several people, the store held by another process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from annotating import body_of, import_pairs, make, prompt_of, standing
from reserved_ports import reserved_port
from web_pages import opened, screenshot, signed_in

from assay.annotation.vote_journal import fold
from assay.workspace import Workspace
from assay_pipelines.annotation.votes import QueueVote

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route


class Voter(threading.Thread):
    """A person as the page behaves: one vote at a time, sent again until it is acknowledged or refused for good."""

    def __init__(self, url: str, name: str, queue: str) -> None:
        super().__init__()
        self.url, self.who, self.queue = url, name, queue
        self.acknowledged: list[str] = []
        self.repeated = self.troubles = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with signed_in(self.url, self.who) as client:
                reply = self.until_done(client, "item", None)
                while (item := reply["item"]) is not None:
                    vote = body_of(item, self.who, choice="first", rationale=f"{self.who} on {item['ticket']}")
                    came = self.until_done(client, "votes", vote)
                    self.acknowledged.append(item["ticket"])
                    self.repeated += came["receipt"]["repeated"]
                    reply = came["next"] or self.until_done(client, "item", None)
                    time.sleep(0.02)
        except BaseException as error:
            self.failure = error
            raise

    def until_done(self, client: httpx.Client, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            try:
                reply = client.post(f"/api/annotate/queues/{self.queue}/{path}", json=body)
            except httpx.TransportError:
                self.troubles += 1
            else:
                if reply.status_code == 200:
                    found: dict[str, Any] = reply.json()
                    return found
                assert reply.status_code >= 500, reply.text
            time.sleep(0.05)
        raise AssertionError("not acknowledged in time")


HOLDER = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def store_held(workspace: Workspace) -> Iterator[None]:
    """Another process has the store open, as a long import does."""
    command = [sys.executable, "-c", HOLDER, str(workspace.store.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        assert holder.poll() is None, "the store was held all the time"
        holder.communicate("let go\n")


class Server:
    """`assay web --open` in a process of its own, on one port however often it is killed."""

    def __init__(self, workspace: Workspace) -> None:
        self.port = reserved_port()
        self.workspace = workspace
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "assay", "web", "--open", "--port", str(self.port)]
        command += ["--workspace", str(self.workspace.root)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/api/session", timeout=1).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
            assert self.process.poll() is None, "the server did not start"
        raise AssertionError("the server did not start in time")

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def server(workspace: Workspace) -> Iterator[Server]:
    import_pairs(workspace, 40)
    found = Server(workspace)
    found.start()
    yield found
    found.kill()


def check_whole(workspace: Workspace, queue: str) -> list[QueueVote]:
    """The operational file and the store tell the same votes, each once."""
    fold(workspace)
    votes = standing(workspace, queue)
    with workspace.store.unit() as db:
        stored = db.execute(
            "SELECT judgment_id, answer, annotator FROM queue_votes WHERE queue = ? AND withdrawn_at IS NULL", [queue]
        ).fetchall()
    assert sorted(stored) == sorted((v.judgment_id, v.answer, v.annotator) for v in votes)
    assert max(Counter((v.comparison_id, v.annotator) for v in votes).values()) == 1
    return votes


@pytest.mark.slow
def test_no_vote_is_lost_or_doubled_by_kills_and_a_held_store(workspace: Workspace, server: Server) -> None:
    with workspace.store.unit() as db:
        comparisons = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons").fetchall()]
    make(workspace, "storm", comparisons, overlap=3)
    people = [Voter(server.url, f"person {n}", "storm") for n in range(6)]
    with store_held(workspace):
        for person in people:
            person.start()
        for kills in (1, 2):
            while sum(len(p.acknowledged) for p in people) < 30 * kills:
                assert [p.failure for p in people] == [None] * 6
                time.sleep(0.01)
            server.kill()
            time.sleep(0.2)
            server.start()  # also while the store is held
        for person in people:
            person.join(600)
    assert [p.failure for p in people] == [None] * 6
    assert sum(p.troubles for p in people) >= 6, "they did meet a dead server"
    votes = check_whole(workspace, "storm")
    assert set(Counter(v.comparison_id for v in votes).values()) == {3}
    assert Counter(v.annotator for v in votes) == Counter({p.who: len(p.acknowledged) for p in people})
    assert all(v.rationale and v.rationale.startswith(f"{v.annotator} on ") for v in votes)


@pytest.mark.slow
@pytest.mark.browser
def test_a_vote_outlives_a_dead_server_a_lost_reply_and_a_reload(
    workspace: Workspace, server: Server, browser: Browser
) -> None:
    with workspace.store.unit() as db:
        comparisons = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons").fetchall()]
    make(workspace, "tough", comparisons)
    with opened(browser, server.url) as page:
        page.goto("/annotate/queue/tough")
        shown = prompt_of(page)
        page.keyboard.press("r")
        page.get_by_label("Rationale").fill("the order stays")
        page.keyboard.press("Escape")
        page.keyboard.press("3")
        page.reload()
        assert prompt_of(page) == shown
        assert page.get_by_label("Rationale").input_value() == "the order stays"

        server.kill()
        page.keyboard.press("a")
        page.get_by_text("Not stored yet").wait_for()
        screenshot(page, "annotate-unsent")
        assert standing(workspace, "tough") == []
        with store_held(workspace):
            server.start()
            page.get_by_text("A is far better").wait_for()  # stored, without anybody's doing
            page.get_by_text("Not stored yet").wait_for(state="hidden")
        (first,) = standing(workspace, "tough")
        assert (first.strength, first.rationale) == (3, "the order stays")

        # The server stores the vote and dies before its reply arrives.
        lost = []

        def lose(route: Route) -> None:
            lost.append(route.fetch().status)
            route.abort()

        page.route("**/votes", lose, times=1)
        shown = prompt_of(page)
        page.keyboard.press("b")
        page.get_by_text("B is better (it was there already)").wait_for()
        assert lost == [200]
        assert prompt_of(page) != shown

        # The page is loaded again while its vote is unsent.
        server.kill()
        page.keyboard.press("t")
        page.get_by_text("Not stored yet").wait_for()
        server.start()
        page.reload()
        prompt_of(page)
        page.get_by_text(re.compile(r"^3 of \d+$")).wait_for()
        page.wait_for_function("Object.keys(localStorage).every(k => !k.startsWith('assay.vote'))")

        # Somebody who comes back to another area has not to look for the queue.
        server.kill()
        page.keyboard.press("g")
        page.get_by_text("Not stored yet").wait_for()
        server.start()
        page.goto("/runs")
        page.get_by_text("1 vote that waited in this browser is stored now.").wait_for()
        screenshot(page, "annotate-stored-later")
        page.wait_for_function("Object.keys(localStorage).every(k => !k.startsWith('assay.vote'))")
    votes = check_whole(workspace, "tough")
    assert [v.answer for v in votes][2:] == ["tie", "both_good"]
    assert len(votes) == 4
