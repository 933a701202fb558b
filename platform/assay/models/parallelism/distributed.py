"""Processes that train one model: rank and world size, collective objects, propagation of errors.

Covers: the processes that torchrun starts (RANK, WORLD_SIZE, LOCAL_RANK), joining and leaving, objects from the first
process to all and from all to all, errors. The first process, rank 0, is the one that owns the workspace: it alone
opens the store and writes files. Leaves out: what the processes do to gradients and weights (`strategy`), what the
other processes run (`distributed` of reward models and of policies).
"""

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from assay.errors import AssayError, BackendError, BadInputError

if TYPE_CHECKING:
    import torch

Parallel = Literal["auto", "none", "ddp", "fsdp"]

T = TypeVar("T")

#: The first process may encode data for hours while the others wait for it.
PATIENCE = timedelta(hours=12)
_FAILED = "assay/failed"
_GRACE = 5.0  #: seconds in which another process's error is expected to be known


class PeerFailedError(BackendError):
    """Another process of the training failed, and this one has to end with it."""

    def __init__(self, rank: int, message: str) -> None:
        self.rank = rank
        super().__init__(f"process {rank} of the training failed: {message}")


class _TerminatedError(BaseException):
    """SIGTERM: what torchrun sends to the other processes when one ends with an error."""


def world_size() -> int:
    """Processes of this training, as torchrun says; 1 without it."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def rank() -> int:
    """This process's number, from 0."""
    return int(os.environ.get("RANK") or 0) if world_size() > 1 else 0


def parse_parallel(name: str) -> Parallel:
    """Raises BadInputError for an unknown strategy."""
    for option in get_args(Parallel):
        if name == option:
            return option  # type: ignore[no-any-return]
    raise BadInputError(f"one of {', '.join(get_args(Parallel))}, not {name!r}", field="--parallel")


def is_follower() -> bool:
    """Whether this process trains for another one, which owns the run."""
    return rank() > 0


def local_device(name: str) -> "torch.device":
    """`pick_device`, with a GPU of its own for each process of a machine."""
    import torch

    from assay.models.devices import pick_device

    device = pick_device(name)
    if world_size() > 1 and device.type == "cuda" and ":" not in name:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK") or 0))
    return device


class ProcessGroup:
    """The processes, joined. Every method is for all of them to call together, in the same order."""

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._store = store

    def share(self, value: T | None) -> T:
        """The first process's value, in all processes."""
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Every process's value, in all processes, by rank."""
        import torch.distributed as dist

        values: list[T] = [value] * self.world
        dist.all_gather_object(values, value)
        return values

    def wait(self) -> None:
        """Until all processes are here."""
        import torch.distributed as dist

        dist.barrier()

    def root_cause(self, error: BaseException) -> BaseException:
        """What to raise for `error`: another process's failure where that is its cause. Our own is told to the rest."""
        from torch.distributed import DistError

        broken = isinstance(error, DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())
        if broken or isinstance(error, _TerminatedError):
            if (failure := self.first_failure()) is not None:
                return PeerFailedError(*failure)
            if broken:
                cause = str(error).strip().splitlines()[0]
                return BackendError(f"a process ended without an error message (killed, out of memory?): {cause}")
            return SystemExit(128 + signal.SIGTERM)
        text = str(error) if isinstance(error, AssayError) else f"{type(error).__name__}: {error}"
        with suppress(Exception):  # the store is gone with the process that kept it: nobody is left to be told
            self._store.compare_set(_FAILED, "", json.dumps([self.rank, text]))
        return error

    def first_failure(self) -> tuple[int, str] | None:
        """Rank and message of the process that failed first, waiting a moment for it to say so."""
        deadline = time.monotonic() + _GRACE
        with suppress(Exception):
            while time.monotonic() < deadline:
                if self._store.check([_FAILED]):
                    failed, message = json.loads(self._store.get(_FAILED))
                    return int(failed), str(message)
                time.sleep(0.05)
        return None


@contextmanager
def torch_process_group() -> Iterator[ProcessGroup]:
    """The group of all processes, for the time of the block.

    What goes wrong in one process ends all: the others raise PeerFailedError with its message where it could still be
    told (a process that is killed tells nothing), and torchrun ends those that do not notice.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    try:
        store, number, world = next(rendezvous("env://", timeout=PATIENCE))
        store = dist.distributed_c10d.PrefixStore(_agreed_prefix(store, number, world), store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=number, world_size=world, timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise BackendError(f"the processes of the training cannot find each other: {error}") from error
    group = ProcessGroup(store, number, world)
    try:
        with _terminated_as_exception():
            try:
                yield group
                group.wait()
            except BaseException as error:
                if (cause := group.root_cause(error)) is not error:
                    raise cause from error
                raise
    finally:
        dist.destroy_process_group()


def _agreed_prefix(store: Any, rank: int, world: int) -> str:
    """A key that these processes have and their predecessors had not: torchrun's store outlives the processes that it
    starts again, and their addresses are in it. The first process repeats what the others say until all have read its
    key. Raises RuntimeError where one does not come."""
    own, deadline = secrets.token_hex(8), time.monotonic() + PATIENCE.total_seconds()

    def stored(key: str) -> str:
        return store.get(key).decode() if store.check([key]) else ""

    if rank > 0:
        store.set(f"hello {rank}", own)
    while time.monotonic() < deadline:
        if rank == 0:
            store.set("start", json.dumps([own, [stored(f"hello {other}") for other in range(world)]]))
            if all(stored(f"ready {other}") == own for other in range(1, world)):
                return own
        elif start := stored("start"):
            key, heard = json.loads(start)
            if rank < len(heard) and heard[rank] == own:
                store.set(f"ready {rank}", key)
                return str(key)
        time.sleep(0.02)
    raise RuntimeError("one of them did not come")


@contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """SIGTERM raises, so that the run record says how the run ended. Signals belong to the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
