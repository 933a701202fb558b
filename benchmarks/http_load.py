"""Load on an HTTP server: so many clients at once, each with one kept-alive connection, each waiting for its reply.

Covers: `drive`, which runs it in a process of its own (`python http_load.py`, plan on standard input, outcome on
standard output), so that the measuring costs the server no interpreter lock.
Leaves out: what is sent and what a right reply is, but for the bodies of replies, which it hands back when asked.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Load:
    """What one run did. Latencies in seconds, of every request, in the order they were answered."""

    seconds: float
    statuses: dict[str, int]  #: by status; "error" = no reply
    latencies: list[float] = field(repr=False)
    replies: list[Any] = field(repr=False, default_factory=list)  #: bodies in the order of the requests, if kept

    @property
    def requests_per_s(self) -> float:
        return sum(self.statuses.values()) / self.seconds

    def percentile(self, share: float) -> float:
        """Nearest rank, seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def all_answered(self) -> bool:
        return set(self.statuses) == {"200"}


def drive(
    url: str,
    bodies: Sequence[Any],
    *,
    clients: int,
    keep: bool = False,
    headers: Mapping[str, str] | None = None,
    timeout: float = 900.0,
) -> Load:
    """POST every body once, from `clients` connections. Raises RuntimeError if the child fails."""
    plan = {"url": url, "bodies": list(bodies), "clients": clients, "keep": keep, "headers": dict(headers or {})}
    plan["timeout"] = timeout
    # Both ways by files: a reply of some 100 kB was once cut in a pipe.
    with tempfile.TemporaryDirectory() as scratch:
        plan_file, load_file = Path(scratch) / "plan.json", Path(scratch) / "load.json"
        plan_file.write_text(json.dumps(plan))
        command = [sys.executable, __file__, str(plan_file), str(load_file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout + 60)
        if done.returncode:
            raise RuntimeError(f"the load generator failed: {done.stderr[-2000:]}")
        return Load(**json.loads(load_file.read_text()))


async def _run(plan: Mapping[str, Any]) -> Load:
    import aiohttp

    waiting = iter(range(len(plan["bodies"])))
    sent = [json.dumps(body).encode() for body in plan["bodies"]]
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    replies: list[Any] = [None] * len(sent)
    headers = {"Content-Type": "application/json", **plan["headers"]}

    async def client(session: aiohttp.ClientSession) -> None:
        for index in waiting:
            started = time.perf_counter()
            try:
                async with session.post(plan["url"], data=sent[index], headers=headers) as response:
                    body = await response.read()
                    statuses[str(response.status)] += 1
                    if plan["keep"]:
                        replies[index] = json.loads(body)
            except (aiohttp.ClientError, TimeoutError):
                statuses["error"] += 1
            latencies.append(time.perf_counter() - started)

    connector = aiohttp.TCPConnector(limit=0)
    limit = aiohttp.ClientTimeout(total=plan["timeout"])
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
        started = time.perf_counter()
        await asyncio.gather(*(client(session) for _ in range(plan["clients"])))
        seconds = time.perf_counter() - started
    return Load(seconds, dict(statuses), latencies, replies if plan["keep"] else [])


def main() -> None:
    import uvloop

    plan_file, load_file = map(Path, sys.argv[1:])
    load = uvloop.run(_run(json.loads(plan_file.read_text())))
    load_file.write_text(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
