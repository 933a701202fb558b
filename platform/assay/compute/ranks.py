"""The processes of one distributed command, started by actors and numbered as torchrun numbers its ranks.

Covers: the ranks of a node (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT), ending all when one ends, what
rank 0 prints, and starting all again after a lost node or a killed rank. Leaves out: hiring nodes
(`assay.compute.executor.open_nodes`), what the ranks do together (`assay.models.parallelism.distributed`), how a
command resumes (its caller).
"""

import fcntl
import logging
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import typer

from assay.compute.actors import ActorLostError, Node
from assay.errors import BackendError
from assay.system import parent_watchdog

log = logging.getLogger(__name__)

TARGET = f"{__name__}:NodeRanks"
#: Above the ports of Ray's workers, below those that Linux gives to outgoing connections.
PORTS = range(20_000, 30_000)
ROOM_S = 1_800.0  #: for a node to replace a lost one
HIRE_EVERY_S, LOOK_S = 5.0, 0.5
FAIL_S = 15.0  #: after a rank's error, for the others to end with its message
STOP_S = 20.0  #: after SIGTERM


@dataclass(frozen=True)
class NodeCommand:
    """What a node starts. `words`: after `python`. `folder`: current one of the ranks, where the node has it.
    `first`, `count`: of its ranks. `address`: the node's own; `master`: rank 0's. `threads`: OMP_NUM_THREADS, by
    default the node's cores over `count`."""

    words: list[str]
    folder: str
    first: int
    count: int
    world: int
    address: str
    master: tuple[str, int]
    threads: str | None = None


class NodeRanks:
    """The ranks of one node, for an actor; they end with its process."""

    def __init__(self) -> None:
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._output: dict[tuple[int, str], BinaryIO] = {}  #: without names: they go with whoever has them open
        self._offsets: Counter[tuple[int, str]] = Counter()

    def free_port(self) -> int:
        for port in random.sample(PORTS, 100):
            with suppress(OSError), socket.socket() as listener:
                listener.bind(("", port))
                return port
        raise BackendError(f"no free port from {PORTS[0]} to {PORTS[-1]}")

    def start(self, command: NodeCommand) -> None:
        guard = [sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid())]
        threads = command.threads or str(max(1, len(os.sched_getaffinity(0)) // command.count))
        environment = os.environ | {
            "MASTER_ADDR": command.master[0],
            "MASTER_PORT": str(command.master[1]),
            "WORLD_SIZE": str(command.world),
            "LOCAL_WORLD_SIZE": str(command.count),
            "OMP_NUM_THREADS": threads,
        }
        if command.count < command.world and (interface := _interface(command.address)):
            environment.setdefault("GLOO_SOCKET_IFNAME", interface)  # gloo would take that of the host's name
        for local in range(command.count):
            ids = {"RANK": str(command.first + local), "LOCAL_RANK": str(local)}
            for stream in ("out", "err"):
                self._output[local, stream] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as this object
            process = subprocess.Popen(
                [*guard, sys.executable, *command.words],
                stdin=subprocess.DEVNULL,
                stdout=self._output[local, "out"],
                stderr=self._output[local, "err"],
                env=environment | ids,
                cwd=command.folder if Path(command.folder).is_dir() else None,
                start_new_session=True,
            )
            self._ranks.append(process)

    def poll(self) -> list[int | None]:
        """The exit status of each rank, as a shell has it; None for one that runs."""
        codes = [process.poll() for process in self._ranks]
        return [128 - code if code is not None and code < 0 else code for code in codes]

    def read(self, local: int, stream: str) -> bytes:
        """What a rank wrote to `out` or `err` since the last time."""
        number, offset = self._output[local, stream].fileno(), self._offsets[local, stream]
        content = os.pread(number, os.fstat(number).st_size - offset, offset)  # the rank's own position stays
        self._offsets[local, stream] += len(content)
        return content

    def stop(self) -> None:
        """End the ranks that run: SIGTERM, and SIGKILL after `STOP_S`."""
        deadline = time.monotonic() + STOP_S
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._ranks:
                if process.poll() is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
            while None in self.poll() and (time.monotonic() < deadline or number == signal.SIGKILL):
                time.sleep(0.05)


def run_ranks(
    hire: Callable[[], AbstractContextManager[Sequence[Node]]],
    words: Callable[[], list[str]],
    *,
    count: int,
    max_restarts: int,
) -> int:
    """The command's exit status. What rank 0 prints is printed here: errors and progress as they come, its standard
    output at the end.

    `hire`: opens an actor of `TARGET` on each node; `words`: what to give to Python, asked before each start;
    `count`: ranks a node. Raises what `hire` raises at first, and BackendError where nodes or ranks were lost more than
    `max_restarts` times or no node came for a lost one.
    """
    restarts = 0
    while True:
        with _hired(hire, time.monotonic() + (ROOM_S if restarts else 0)) as nodes:
            try:
                return _run(nodes, words(), count)
            except ActorLostError as error:
                if restarts >= max_restarts:
                    raise BackendError(f"{error}; it was started again {restarts} times (--max-restarts)") from error
                restarts += 1
                log.warning("%s: all ranks start again (%d of %d)", error, restarts, max_restarts)
        time.sleep(parent_watchdog.LOOK_S + parent_watchdog.GRACE_S)  # what outlived its actor has ended then


@contextmanager
def _hired(hire: Callable[[], AbstractContextManager[Sequence[Node]]], deadline: float) -> Iterator[Sequence[Node]]:
    with ExitStack() as stack:
        while True:
            try:
                nodes = stack.enter_context(hire())
                break
            except BackendError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(HIRE_EVERY_S)
        yield nodes


def _run(nodes: Sequence[Node], words: list[str], count: int) -> int:
    """One start. Raises ActorLostError where a node is gone or a rank was killed."""
    first, world = nodes[0], count * len(nodes)
    master = first.address, first.actor.call("free_port")
    codes: list[list[int | None]] = [[None] * count for _ in nodes]
    failed: int | None = None
    deadline = 0.0
    try:
        for number, node in enumerate(nodes):
            threads = os.environ.get("OMP_NUM_THREADS")
            command = NodeCommand(words, str(Path.cwd()), number * count, count, world, node.address, master, threads)
            node.actor.call("start", command)
        while True:
            codes = [
                [0] * count if codes[n] == [0] * count else node.actor.call("poll") for n, node in enumerate(nodes)
            ]
            typer.echo(first.actor.call("read", 0, "err"), err=True, nl=False)
            flat = list(chain(*codes))
            for rank, code in enumerate(flat):
                if code is not None and 0 < code - 128 not in (signal.SIGINT, signal.SIGTERM):
                    address = nodes[rank // count].address
                    raise ActorLostError(f"rank {rank} on {address} was killed by signal {code - 128}")
            if flat[0] == 0:  # it is the last to end, and has saved everything
                break
            if failed is None and any(flat):
                failed = next(rank for rank, code in enumerate(flat) if code)
                deadline = time.monotonic() + FAIL_S
            if failed is not None and (None not in flat or time.monotonic() > deadline):
                break
            time.sleep(LOOK_S)
        output = first.actor.call("read", 0, "out")  # before the others are ended: a node lost now costs nothing
    finally:
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(_stop, nodes))
    typer.echo(output, nl=False)
    if flat[0] is None and failed is not None:  # rank 0 has not learnt of it
        lines = nodes[failed // count].actor.call("read", failed % count, "err").decode(errors="replace").splitlines()
        typer.echo(f"assay: rank {failed}: {(lines or ['no message'])[-1]}", err=True)
    return flat[0] if flat[0] is not None else flat[failed or 0] or 0


def _stop(node: Node) -> None:
    with suppress(ActorLostError):
        node.actor.call("stop")


def _interface(address: str) -> str | None:
    """Of this machine, that which has the IPv4 address."""
    for _, name in socket.if_nameindex():
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", name[:15].encode())
            answer = fcntl.ioctl(probe, 0x8915, request)  # SIOCGIFADDR
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return None
