"""Wear the server out, and check every reply: 256 clients, faults of the engine, of clients and of their bodies.

Clients send scores to be given (alone, in groups, in the wire formats of trainers), items on which the engine fails
or raises, bodies that are too large, cut off, or no JSON; they send slowly, read slowly, or hang up. For the last
quarter of the time the engine process is killed (SIGKILL) again and again. With `--faults all` engine and HTTP workers
are killed and stopped (SIGSTOP) all the time, and clients repeat what broke or was refused: nothing may be lost. The
engine is scripted: a reward is a function of the text, so that each reply is checked against the right one.

The script fails on: a wrong score; a reply to another request than the one sent; a request that ends without a reply
and without the client's doing; a 5xx other than 503; a wrong body that is taken; no score at all; memory of a process
that grows between the first and the last part of the time without kills; a server that does not score after it all.
With all faults besides: a score that no try got; a stopped process that is not replaced within twice the request
timeout; a /readyz that takes longer than a second while the engine is away. Then 504 is a right reply, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measure import Report, arguments
from scripted_engine import BREAK, FAIL, SLOW, reward_of
from servers import scripted_server

MEASURES = (
    "serving/assay_serving/server",
    "serving/assay_serving/engine_process",
)

KEY = "soak-key"
MAX_BODY = 200_000
GROWTH_SHARE, GROWTH_MB = 0.05, 12.0  #: of a process's memory that is allocator and caches filling, not a leak
KILLS_FROM = 0.75  #: of the time
KILL_EVERY_S = 4.0
TIMEOUT_S = 30.0
INSIST_S = 60.0  #: of tries, until a score is lost
REQUEST_TIMEOUT_S = 10.0  #: of the server that is stopped
READY_S = 1.0
PROGRAMS = {"engine": "scripted_child", "HTTP worker": "http_worker"}


@dataclass
class Tally:
    """What happened. `wrong` are the first few descriptions of what must not."""

    statuses: Counter[str] = field(default_factory=Counter)
    scores: int = 0
    cached: int = 0
    failures: int = 0
    wrong: list[str] = field(default_factory=list)
    wrongs: int = 0
    memory: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    kills: int = 0
    recoveries: list[float] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    patience: float = 1.0  #: times the limits of time
    turns_left: int = 0  #: faults of processes that are still to come, however long they take
    slowest_ready: float = 0.0

    def blame(self, what: str) -> None:
        self.wrongs += 1
        if len(self.wrong) < 20:
            self.wrong.append(what)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--clients", type=int, default=None, help="at once (default: 256; quick: 64)")
    parser.add_argument("--seconds", type=float, default=None, help="of load (default: 120; quick: 20)")
    parser.add_argument("--workers", type=int, default=2, help="HTTP workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", choices=("engine", "all"), default="engine", help="which processes end, and how")
    parser.add_argument("--turns", type=int, default=0, help="faults of processes at least, however long they take")
    parser.add_argument(
        "--patience", type=float, default=1.0, help="times the limits, where the machine does much else"
    )
    options = parser.parse_args()
    options.clients = options.clients or (64 if options.quick else 256)
    options.seconds = options.seconds or (20.0 if options.quick else 120.0)
    limits = ["--max-queue", "600", "--max-body-bytes", str(MAX_BODY), "--api-key", KEY]
    limits += ["--cache-entries", "2000"]  # full long before memory is looked at
    if options.faults == "all":
        limits += ["--request-timeout", str(REQUEST_TIMEOUT_S)]
    with scripted_server("--workers", str(options.workers), *limits, key=KEY) as (url, process):
        tally = asyncio.run(wear_out(url, process, options))
    finish(tally, options)


async def wear_out(url: str, root: int, options: argparse.Namespace) -> Tally:
    """All clients for the time given. `root`: the process that was started as the server."""
    import aiohttp

    tally = Tally(patience=options.patience, turns_left=options.turns if options.faults == "all" else 0)
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(
        url, connector=connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT_S * tally.patience), headers=headers
    ) as session:
        until = time.monotonic() + options.seconds
        kills_from = until - (1 - KILLS_FROM) * options.seconds
        insists = options.faults == "all"
        seeds = [(number, options.seed) for number in range(options.clients)]
        work = [client(number, session, url, until, tally, seed, insists=insists) for number, seed in seeds]
        watching = asyncio.create_task(watch_memory(root, 0.0 if insists else kills_from, tally))
        if insists:
            killing = asyncio.create_task(end_and_stop(root, url, until, tally))
        else:
            killing = asyncio.create_task(kill_engine(root, kills_from, until, session, tally))
        await asyncio.gather(*work)
        await killing
        watching.cancel()
        await answers_after_all(session, tally)
    return tally


async def client(
    number: int, session: Any, url: str, until: float, tally: Tally, seed: int, *, insists: bool = False
) -> None:
    """One client: one thing after another, drawn from its own seed."""
    drawn = random.Random(f"{seed}-{number}")
    asker = Asker(session, url, drawn, tally, f"c{number}", insists=insists)
    things: list[tuple[int, Callable[[], Awaitable[None]]]] = [
        (30, asker.one_item),
        (10, asker.group),
        (15, asker.known),
        (15, asker.trainer),
        (5, asker.faulty),
        (4, asker.wrong_body),
        (2, asker.large_body),
        (2, asker.hang_up),
        (1, asker.send_slowly),
        (1, asker.read_slowly),
    ]
    weights = [weight for weight, _ in things]
    while time.monotonic() < until or tally.turns_left > 0:
        thing = drawn.choices([thing for _, thing in things], weights)[0]
        try:
            await thing()
        except Exception as error:
            if insists and isinstance(error, OSError | IndexError) and "slow" in thing.__name__:
                tally.statuses["connection broken"] += 1  # with its HTTP worker; raw clients do not insist
                continue
            tally.blame(f"{thing.__name__}: no reply: {type(error).__name__} {error}"[:300])


class Asker:
    """What one client does. Every request has an id of its own, which its reply must carry. `insists`: it repeats what
    broke with a process, or was refused for now."""

    def __init__(
        self, session: Any, url: str, drawn: random.Random, tally: Tally, name: str, *, insists: bool = False
    ) -> None:
        self.insists = insists
        self.session, self.url, self.drawn, self.tally, self.name = session, url, drawn, tally, name
        self.sent = 0

    def text(self, mark: str = "") -> str:
        words = " ".join(str(self.drawn.randrange(10**6)) for _ in range(self.drawn.randrange(1, 30)))
        return f"{self.name} {self.sent} {words} {mark}".strip()

    async def post(self, path: str, body: Any, *, raw: bytes | None = None) -> tuple[int, Any]:
        """As `post_once`, until there is a reply that is none of a server in trouble."""
        import aiohttp

        until = time.monotonic() + INSIST_S * self.tally.patience
        while True:
            try:
                status, reply = await self.post_once(path, body, raw=raw)
                if not self.insists or status not in (429, 503, 504):
                    return status, reply
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError):
                if not self.insists:
                    raise
                self.tally.statuses["connection broken"] += 1
            if time.monotonic() > until:
                self.tally.lost += 1
                raise TimeoutError(f"no reply in {INSIST_S * self.tally.patience:g} s of tries")
            await asyncio.sleep(self.drawn.uniform(0, 0.5))

    async def post_once(self, path: str, body: Any, *, raw: bytes | None = None) -> tuple[int, Any]:
        """Status and decoded body of the reply; what holds for every reply is checked here."""
        self.sent += 1
        sent_id = f"{self.name}-{self.sent}"
        data = raw if raw is not None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": sent_id}
        async with self.session.post(path, data=data, headers=headers) as response:
            content = await response.read()
            status = response.status
            self.tally.statuses[str(status)] += 1
            if response.headers.get("x-request-id") != sent_id:
                self.tally.blame(f"{path}: a reply to {response.headers.get('x-request-id')} for {sent_id}")
            if status >= 500 and status not in ((503, 504) if self.insists else (503,)):
                self.tally.blame(f"{path}: {status} {content[:200]!r}")
            if status in (429, 503):
                if "retry-after" not in response.headers:
                    self.tally.blame(f"{path}: {status} without Retry-After")
                await asyncio.sleep(self.drawn.uniform(0, 0.2))
            return status, json.loads(content)

    def check(self, path: str, reward: Any, text: str) -> None:
        self.tally.scores += 1
        if reward != reward_of(text):
            self.tally.blame(f"{path}: a wrong score: {reward} for {reward_of(text)}")

    async def one_item(self) -> None:
        await self._native([self.text(SLOW if self.drawn.random() < 0.01 else "")])

    async def known(self) -> None:
        """Texts that all clients ask for again and again: from the cache, or computed once for several."""
        await self._native([f"known {self.drawn.randrange(200)}" for _ in range(self.drawn.choice((1, 1, 8)))])

    async def group(self) -> None:
        await self._native([self.text() + f" {n}" for n in range(self.drawn.choice((2, 8, 16, 64)))])

    async def faulty(self) -> None:
        texts = [self.text(), self.text(self.drawn.choice((FAIL, BREAK))), self.text()]
        await self._native(texts)

    async def _native(self, texts: list[str]) -> None:
        path = "/v1/score"
        status, reply = await self.post(path, {"prompt": "p", "responses": texts})
        if status != 200:
            if status != 503:
                self.tally.blame(f"{path}: {status} for a right request")
            return
        self.tally.cached += reply["usage"]["cached"]
        if len(reply["results"]) != len(texts):
            self.tally.blame(f"{path}: {len(reply['results'])} results for {len(texts)}")
        for text, result in zip(texts, reply["results"], strict=False):
            if (error := result.get("error")) is not None:
                self.tally.failures += 1
                if FAIL not in text and not any(BREAK in other for other in texts):
                    self.tally.blame(f"{path}: a failure for a right item: {error}")
                if result.get("reward") is not None:
                    self.tally.blame(f"{path}: a failure with a number")
            elif FAIL in text or BREAK in text:
                self.tally.blame(f"{path}: a score for an item that has none")
            else:
                self.check(path, result["reward"], f"p\n{text}")

    async def trainer(self) -> None:
        """One wire format of a trainer, with one rendered text."""
        text = self.text()
        formats: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
            ("/get_reward", {"query": [text], "prompts": [""], "labels": [None]}, lambda r: r["rewards"][0]),
            (
                "/classify",
                {"model": "scripted", "input": text, "use_activation": False},
                lambda r: r["data"][0]["probs"][0],
            ),
            ("/classify", {"text": text}, lambda r: r["embedding"][0]),
            ("/v1/embeddings", {"model": "scripted", "input": text}, lambda r: r["data"][0]["embedding"][0]),
            ("/v1/score/evaluation", {"model": "scripted", "messages": [text]}, lambda r: r["scores"][0]),
        ]
        path, body, read = self.drawn.choice(formats)
        status, reply = await self.post(path, body)
        if status == 200:
            self.check(path, read(reply), text)
        elif status != 503:
            self.tally.blame(f"{path}: {status} for a right request: {reply}")

    async def wrong_body(self) -> None:
        raw = self.drawn.choice(
            [
                *(b"", b"{", b"[]", b"nonsense", b'{"items": 3}', b'{"prompt": "p", "responses": [1e999]}'),
                *(b"\xff\xfe", b"[" * 5000, b'{"a":' * 5000),
            ]
        )
        path = self.drawn.choice(("/v1/score", "/get_reward", "/classify", "/v1/score/evaluation", "/v1/embeddings"))
        status, _ = await self.post(path, None, raw=raw)
        if status < 400:
            self.tally.blame(f"{path}: {status} for {raw[:60]!r}")

    async def large_body(self) -> None:
        import aiohttp

        try:
            status, _ = await self.post("/v1/score", {"prompt": "p", "responses": ["x" * (MAX_BODY + 1000)]})
        except (aiohttp.ClientOSError, ConnectionError):  # answered, and hung up while the body was still being sent
            self.tally.statuses["hung up on a large body"] += 1
            return
        if status != 413:
            self.tally.blame(f"a body of more than {MAX_BODY} bytes: {status}")

    async def hang_up(self) -> None:
        body = json.dumps({"prompt": "p", "responses": [self.text(SLOW)]}).encode()
        _, writer = await self._raw(body)
        await asyncio.sleep(self.drawn.uniform(0, 0.02))
        writer.transport.abort()
        self.tally.statuses["client hung up"] += 1

    async def send_slowly(self) -> None:
        text = self.text()
        body = json.dumps({"prompt": "p", "responses": [text]}).encode()
        reader, writer = await self._raw(body[:5], length=len(body))
        for at in range(5, len(body), max(1, len(body) // 5)):
            await asyncio.sleep(0.1)
            writer.write(body[at : at + max(1, len(body) // 5)])
        await self._read_raw(reader, writer, text)

    async def read_slowly(self) -> None:
        text = self.text()
        reader, writer = await self._raw(json.dumps({"prompt": "p", "responses": [text]}).encode())
        await asyncio.sleep(1.0)
        await self._read_raw(reader, writer, text)

    async def _raw(self, body: bytes, length: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/score HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {length or len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return reader, writer

    async def _read_raw(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> None:
        reply = await asyncio.wait_for(reader.read(), TIMEOUT_S * self.tally.patience)
        writer.close()
        status = int(reply.split(b" ", 2)[1])
        self.tally.statuses[str(status)] += 1
        if status == 200:
            reward = json.loads(reply.split(b"\r\n\r\n", 1)[1])["results"][0]["reward"]
            self.check("a slow client", reward, f"p\n{text}")
        elif status not in ((503, 504) if self.insists else (503,)):
            self.tally.blame(f"a slow client: {status}")


async def watch_memory(root: int, until: float, tally: Tally) -> None:
    """Resident memory of every process of the server, twice a second, as long as nothing is killed."""
    while time.monotonic() < until:
        for pid, (_, rss) in processes(root).items():
            tally.memory.setdefault(pid, []).append((time.monotonic(), rss))
        await asyncio.sleep(0.5)


async def kill_engine(root: int, start: float, until: float, session: Any, tally: Tally) -> None:
    """SIGKILL to the engine process, again once it is back."""
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    while time.monotonic() < until:
        engines = [pid for pid, (command, _) in processes(root).items() if "scripted_child" in command]
        for pid in engines:
            os.kill(pid, signal.SIGKILL)
        tally.kills += len(engines)
        killed = time.monotonic()
        await asyncio.sleep(0.5)
        while time.monotonic() - killed < TIMEOUT_S:
            async with session.get("/readyz") as response:
                if response.status == 200:
                    tally.recoveries.append(time.monotonic() - killed)
                    break
            await asyncio.sleep(0.05)
        else:
            tally.blame("the server did not recover from the loss of its engine")
            return
        await asyncio.sleep(KILL_EVERY_S)


async def end_and_stop(root: int, url: str, until: float, tally: Tally) -> None:
    """SIGKILL and SIGSTOP to the engine and to an HTTP worker in turn, each once the one before is made good."""
    import aiohttp

    connector = aiohttp.TCPConnector(force_close=True)
    headers = {"Authorization": f"Bearer {KEY}"}
    turn = 0
    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:
        while time.monotonic() < until or tally.turns_left > 0:
            name = ("engine", "HTTP worker")[turn % 2]
            number = (signal.SIGSTOP, signal.SIGKILL)[turn // 2 % 2]
            pids = [pid for pid, (command, _) in processes(root).items() if PROGRAMS[name] in command]
            if not pids:
                await asyncio.sleep(0.1)
                continue
            turn += 1
            os.kill(pids[0], number)
            tally.faults[f"{name} {number.name}"] += 1
            tally.kills += 1
            began = time.monotonic()
            while time.monotonic() - began < 2 * REQUEST_TIMEOUT_S * tally.patience:
                ready = await ready_in_time(session, tally, watched=name == "engine")
                if ready and pids[0] not in processes(root):
                    tally.recoveries.append(time.monotonic() - began)
                    break
                await asyncio.sleep(0.1)
            else:
                tally.blame(f"{name} is not replaced {time.monotonic() - began:.0f} s after {number.name}")
                tally.turns_left = 0
                return
            tally.turns_left -= 1
            await asyncio.sleep(1.0)


async def ready_in_time(session: Any, tally: Tally, *, watched: bool) -> bool:
    """Whether /readyz says so; where that is `watched`, it must say something within a second."""
    import aiohttp

    began = time.monotonic()
    try:
        async with session.get("/readyz") as response:
            ready = bool(response.status == 200)
    except aiohttp.ClientConnectionError:  # with the HTTP worker that was killed
        return False
    seconds = time.monotonic() - began
    if watched:
        tally.slowest_ready = max(tally.slowest_ready, seconds)
        if seconds > READY_S * tally.patience:
            tally.blame(f"/readyz took {seconds:.2f} s while the engine was away")
    return ready


async def answers_after_all(session: Any, tally: Tally) -> None:
    for _ in range(100):
        async with session.post("/v1/score", json={"prompt": "p", "responses": ["after all"]}) as response:
            if response.status == 200:
                reward = (await response.json())["results"][0]["reward"]
                if reward != reward_of("p\nafter all"):
                    tally.blame(f"after all: a wrong score {reward}")
                return
        await asyncio.sleep(0.2)
    tally.blame("the server does not score after all")


def processes(root: int) -> dict[int, tuple[str, float]]:
    """Command line and resident MB of a process and of all that descend from it."""
    parents: dict[int, int] = {}
    children: dict[int, tuple[str, float]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended meanwhile
            continue
        if fields[0] != "Z":
            parents[int(folder.name)] = int(fields[1])
            children[int(folder.name)] = (command, int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6)
    descended = {root}
    while more := {pid for pid, parent in parents.items() if parent in descended} - descended:
        descended |= more
    return {pid: what for pid, what in children.items() if pid in descended}


def growth(samples: list[tuple[float, float]]) -> tuple[float, float]:
    """Median memory (MB) of the second and of the last fifth of the samples."""
    fifth = max(1, len(samples) // 5)
    early = sorted(rss for _, rss in samples[fifth : 2 * fifth] or samples)
    late = sorted(rss for _, rss in samples[-fifth:])
    return early[len(early) // 2], late[len(late) // 2]


def finish(tally: Tally, options: argparse.Namespace) -> None:
    memory = {}
    for pid, samples in tally.memory.items():
        early, late = growth(samples)
        memory[pid] = [round(early, 1), round(late, 1)]
        if late > early * (1 + GROWTH_SHARE) + GROWTH_MB:
            tally.blame(f"process {pid} grew from {early:.0f} to {late:.0f} MB")
    if not (tally.scores and tally.kills and tally.cached):
        tally.blame(f"{tally.scores} scores, {tally.cached} cached, {tally.kills} engines killed: this shows nothing")
    report = Report("soak", measures=MEASURES)
    report.figures = {
        "clients": options.clients,
        "seconds": options.seconds,
        "replies": dict(sorted(tally.statuses.items())),
        "scores checked": tally.scores,
        "of them from the cache": tally.cached,
        "typed failures": tally.failures,
        "what must not happen": tally.wrongs,
        "engine kills": tally.kills,
        "lost": tally.lost,
        "faults": dict(tally.faults),
        "slowest /readyz while the engine is away, s": round(tally.slowest_ready, 2),
        "seconds to recover": [round(seconds, 2) for seconds in tally.recoveries],
        "memory MB, early and late": list(memory.values()),
    }
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    for what in tally.wrong:
        print(f"WRONG: {what}")
    report.finish(options)
    if tally.wrongs:
        sys.exit(1)


if __name__ == "__main__":
    main()
