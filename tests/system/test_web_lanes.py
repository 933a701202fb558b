"""Votes go through while many pages wait: for a store that another process holds, or behind each other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import httpx
from web_pages import running_web, signed_in

from assay.workspace import Workspace

HOLD = "import sys, duckdb; db = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
PAGES = 100


async def who_among_pages(url: str, session: httpx.Client) -> tuple[float, list[int]]:
    """Seconds until a request without the store is answered amid PAGES that wait for it, and what came of those."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, cookies=session.cookies, timeout=120, limits=limits) as client:
        pages = [asyncio.create_task(client.get("/api/curate/funnel")) for _ in range(PAGES)]
        await asyncio.sleep(0.5)  # all are under way
        asked = time.monotonic()
        headers = {"X-CSRF-Token": session.headers["X-CSRF-Token"]}
        # The route of a vote, and all that a vote passes on its way; of a queue that there is not.
        voted = await client.post("/api/annotate/queues/none/item", headers=headers)
        seconds = time.monotonic() - asked
        assert voted.status_code == 404, voted.text
        assert not any(page.done() for page in pages), "nothing waited: this shows nothing"
        return seconds, [reply.status_code for reply in await asyncio.gather(*pages)]


def test_a_vote_goes_through_while_a_hundred_pages_wait_for_the_store(workspace: Workspace) -> None:
    wait = 4.0
    with running_web(workspace, store_wait_s=wait) as url, signed_in(url) as session:
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, str(workspace.store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            seconds, pages = asyncio.run(who_among_pages(url, session))
            holder.communicate(b"")
        assert seconds < wait / 2
        assert set(pages) == {503}
        assert session.get("/api/curate/funnel").status_code == 200, "the lanes were not given back"
