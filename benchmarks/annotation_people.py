"""People who annotate over HTTP, in a process of their own, so that measuring costs the server no interpreter lock.

Covers: `drive`, which runs them (`python annotation_people.py PLAN FOUND`). Each has a session and a kept connection,
votes with a strength and now and then a rationale, and asks for the live figures as the page does. Leaves out: the
browser.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

LIVE_S = 5.0  #: between two looks at the live figures


@dataclass(frozen=True)
class Voted:
    """What one run did. `latencies`: seconds from sending a vote until its reply, with the next item, is parsed."""

    seconds: float
    latencies: list[float] = field(repr=False)
    live: list[float] = field(repr=False)
    failures: int

    @property
    def votes_per_s(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        """Nearest rank, seconds."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def drive(url: str, queue: str, *, people: int, seconds: float, think_s: float, seed: int) -> Voted:
    """So many people for so long. `think_s`: mean of the time that each looks at an item (exponential); 0: none."""
    plan = {"url": url, "queue": queue, "people": people, "seconds": seconds, "think_s": think_s, "seed": seed}
    with tempfile.TemporaryDirectory() as scratch:
        plan_file, votes_file = Path(scratch) / "plan.json", Path(scratch) / "voted.json"
        plan_file.write_text(json.dumps(plan))
        command = [sys.executable, __file__, str(plan_file), str(votes_file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
        if done.returncode:
            raise RuntimeError(f"the people failed: {done.stderr[-2000:]}")
        return Voted(**json.loads(votes_file.read_text()))


async def _run(plan: Mapping[str, Any]) -> Voted:
    import aiohttp

    latencies: list[float] = []
    live: list[float] = []
    failures = 0
    path = f"/api/annotate/queues/{plan['queue']}"

    async def person(number: int) -> None:
        nonlocal failures
        name = f"person {plan['seed']} {number}"
        draw = random.Random(name)
        async with aiohttp.ClientSession(plan["url"], cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
            async with client.post("/api/session", json={"name": name}) as reply:
                client.headers["X-CSRF-Token"] = (await reply.json())["csrf"]
            async with client.post(f"{path}/item") as reply:
                item = (await reply.json())["item"]
            await asyncio.sleep(draw.uniform(0, plan["think_s"]))  # they do not begin at one moment
            looked = 0.0
            while item is not None and time.perf_counter() < end:
                thought = draw.expovariate(1 / plan["think_s"]) if plan["think_s"] else 0.0
                await asyncio.sleep(thought)
                vote = {
                    "person": name,
                    "ticket": item["ticket"],
                    "seal": item["seal"],
                    "choice": draw.choice(("first", "second", "first", "second", "tie", "both_bad")),
                    "strength": draw.randrange(4),
                    "rationale": "The other one does not answer what was asked." if draw.random() < 0.2 else "",
                    "seconds": round(thought, 1),
                }
                started = time.perf_counter()
                async with client.post(f"{path}/votes", json=vote) as reply:
                    ticket = await reply.json()
                    if reply.status != 200:
                        failures += 1
                        return
                latencies.append(time.perf_counter() - started)
                item = ticket["next"]["item"]
                if time.perf_counter() - looked > LIVE_S:
                    looked = time.perf_counter()
                    async with client.get(f"{path}/live") as reply:
                        await reply.read()
                    live.append(time.perf_counter() - looked)

    started = time.perf_counter()
    end = started + plan["seconds"]
    await asyncio.gather(*(person(number) for number in range(plan["people"])))
    return Voted(time.perf_counter() - started, latencies, live, failures)


def main() -> None:
    import uvloop

    plan_file, votes_file = map(Path, sys.argv[1:])
    voted = uvloop.run(_run(json.loads(plan_file.read_text())))
    votes_file.write_text(json.dumps(asdict(voted)))


if __name__ == "__main__":
    main()
