"""Votes go through while many pages wait: for a store that another process holds, or behind each other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import pytest
from web_pages import running_web, signed_in

from assay.errors import BusyError
from assay.runs.record import mark_dead_runs
from assay.workspace import Workspace
from assay_pipelines.annotation.service import AnnotationService
from assay_web.service import WebService
from assay_web.settings import WebSettings

HOLD = "import sys, duckdb; db = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
PAGES = 100


async def vote_among_pages(url: str, session: httpx.Client, let_go: Callable[[], object]) -> list[int]:
    """A request without the store is answered amid PAGES that wait for it; what came of those when it is let go."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, cookies=session.cookies, timeout=600, limits=limits) as client:
        pages = [asyncio.create_task(client.get("/api/curate/funnel")) for _ in range(PAGES)]
        await asyncio.sleep(0.5)  # all are under way
        headers = {"X-CSRF-Token": session.headers["X-CSRF-Token"]}
        # The route of a vote, and all that a vote passes on its way; of a queue that there is not.
        voted = await client.post("/api/annotate/queues/none/item", headers=headers)
        assert voted.status_code == 404, voted.text
        assert not any(page.done() for page in pages), "nothing waited: this shows nothing"
        let_go()
        return [reply.status_code for reply in await asyncio.gather(*pages)]


def test_a_vote_goes_through_while_a_hundred_pages_wait_for_the_store(workspace: Workspace) -> None:
    with running_web(workspace, store_wait_s=600.0) as url, signed_in(url) as session:
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(workspace.store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            pages = asyncio.run(vote_among_pages(url, session, lambda: holder.communicate(b"")))
        assert set(pages) == {200}
        assert session.get("/api/curate/funnel").status_code == 200, "the lanes were not given back"


def test_votes_are_folded_again_after_an_attempt_that_failed_in_a_way_nobody_foresaw(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[None] = []

    def fails_once(desk: AnnotationService) -> bool:
        attempts.append(None)
        if len(attempts) == 1:
            raise OSError("a disk that was away for a moment")
        return True

    monkeypatch.setattr(AnnotationService, "fold", fails_once)
    with running_web(workspace, fold_every_s=0.05):
        until = time.monotonic() + 240
        while len(attempts) < 2 and time.monotonic() < until:
            time.sleep(0.05)
    assert len(attempts) >= 2


def test_no_route_waits_for_the_store_as_long_as_a_command_does(workspace: Workspace) -> None:
    service = WebService(workspace, WebSettings(store_wait_s=0.2))
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(workspace.store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=r"waited 0.2 s"):
            mark_dead_runs(service.workspace)  # as the routes of runs do
        holder.communicate(b"")
