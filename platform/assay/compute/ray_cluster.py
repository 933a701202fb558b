"""Shards mapped by the actors of a Ray cluster: the one module that imports Ray (the extra `ray`).

One actor a slot; the driver owns the units. A unit that takes longer than a deadline is given to another actor, so that
a node behind a cut link holds nobody up; actors are hired again on nodes that come (back). Results are files in storage
that driver and nodes share, each renamed into place when it is whole: a unit that two workers mapped has one result.

Leaves out: Ray's own retries, restarts, data sets and object transfers of tables.
"""

import logging
import os
import platform
import secrets
import socket
import statistics
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from assay import __version__
from assay.compute.actors import FIRST_CALL_S, ActorLostError, CallDeadline, Node
from assay.compute.job import JobSpec, ShardJob, Unit, UnitDone, built, map_shard
from assay.compute.local import opened_once
from assay.errors import AssayError, BackendError, BadInputError

log = logging.getLogger(__name__)

#: A unit may take max(10 s, 6 times the median of those that are done), twice that with each worker lost over it.
LEAST_DEADLINE_S, MEDIANS = 10.0, 6.0
HELLO_S = 60.0  #: for an actor to start and answer
HIRE_EVERY_S, CONNECT_S = 2.0, 5.0
TRIES = 5
_LOOK_S = 0.5


class _Worker:
    """The actor. Knows no store, only files."""

    def hello(self, probe: str) -> dict[str, Any]:
        path = Path(probe)
        return {
            "node": ray.util.get_node_ip_address(),
            "assay": __version__,
            "python": platform.python_version(),
            "ray": ray.__version__,
            "sees": path.read_text(encoding="utf-8") if path.is_file() else None,
            "auth": os.environ.get("RAY_AUTH_MODE", ""),
        }

    def build(self, spec: JobSpec) -> None:
        spec.build()

    def map(self, spec: JobSpec, unit: Unit) -> UnitDone:
        return map_shard(opened_once(spec), spec.digest, unit, ray.util.get_node_ip_address())


class _ActorHost:
    """The process of a `RayActor`: its object is made at the first call."""

    def __init__(self, target: str, arguments: Mapping[str, Any]) -> None:
        self.target, self.arguments, self.instance = target, arguments, None

    def hello(self, probe: str) -> dict[str, Any]:
        return _Worker().hello(probe)

    def call(self, method: str, *values: Any) -> Any:
        self.instance = self.instance or built(self.target, self.arguments)
        return getattr(self.instance, method)(*values)


class RayActor:
    """See `assay.compute.actors.Actor`. An argument that is an object reference arrives as the object.

    `cpus`, `gpus`: of its node. A node behind a cut link is lost after a call's deadline. Raises BadInputError where
    its node has another version or does not see `folder`, BackendError for a cluster that cannot be reached,
    ActorLostError where it has no room for `HELLO_S`.
    """

    def __init__(
        self,
        address: str,
        target: str,
        arguments: Mapping[str, Any],
        *,
        folder: Path,
        cpus: float = 1,
        gpus: float = 0,
        scheduling: PlacementGroupSchedulingStrategy | None = None,
    ) -> None:
        connect(address)
        self._deadline = CallDeadline()
        remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0)(_ActorHost)
        self._actor = remote.options(scheduling_strategy=scheduling).remote(target, dict(arguments))
        with probe_file(folder) as probe:
            try:
                node = self._answer(self._actor.hello.remote(str(probe)), HELLO_S)
            except ActorLostError as error:
                reason = f"the Ray cluster at {address} has no room for an actor: {HELLO_S:.0f} s"
                raise ActorLostError(reason) from error
        problem = unlike(node, probe)
        if problem:
            self.close()
            raise BadInputError(problem)
        self.address = str(node["node"])

    def call(self, method: str, *arguments: Any) -> Any:
        started = time.monotonic()
        answer = self._answer(self._actor.call.remote(method, *arguments), self._deadline.seconds)
        self._deadline.answered_in(time.monotonic() - started)
        return answer

    def _answer(self, reference: Any, deadline: float) -> Any:
        try:
            return ray.get(reference, timeout=deadline)
        except RayTaskError as error:
            raise _cause(error) from error
        except (RayError, GetTimeoutError) as error:
            self.close()
            raise ActorLostError(f"an actor of the Ray cluster is gone: {type(error).__name__}") from error

    def close(self) -> None:
        _dismiss(self._actor)


@contextmanager
def probe_file(folder: Path) -> Iterator[Path]:
    """A file in `folder`, for the block, whose text is its name: whoever reads that sees the folder."""
    probe = folder / f".probe-{secrets.token_hex(4)}"
    probe.write_text(probe.name, encoding="utf-8")
    try:
        yield probe
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def ray_nodes(address: str, count: int, target: str, *, folder: Path, cpus: int, gpu: bool) -> Iterator[Sequence[Node]]:
    """See `assay.compute.executor.open_nodes`."""
    connect(address)
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    resources = [node for node in resources if node.get("CPU", 0) >= cpus]
    gpus = cpus if gpu and any(node.get("GPU", 0) >= cpus for node in resources) else 0
    room = sum(node.get("GPU", 0) >= gpus for node in resources)
    need = f"{cpus} CPU{'s' * (cpus > 1)}" + f" and {gpus} GPU{'s' * (gpus > 1)}" * bool(gpus)
    if room < count:
        raise BackendError(f"the Ray cluster at {address} has {room} nodes with {need}, not {count}")
    resources_of_each = {"CPU": float(cpus)} | ({"GPU": float(gpus)} if gpus else {})
    group = placement_group([resources_of_each] * count, strategy="STRICT_SPREAD")
    actors: list[RayActor] = []
    try:
        if not group.wait(HELLO_S):
            raise BackendError(f"the Ray cluster at {address} has no {need} free on {count} nodes: {HELLO_S:.0f} s")
        with ThreadPoolExecutor(count) as pool:
            bundles = [PlacementGroupSchedulingStrategy(group, number) for number in range(count)]
            openings = [
                pool.submit(RayActor, address, target, {}, folder=folder, cpus=cpus, gpus=gpus, scheduling=bundle)
                for bundle in bundles
            ]
        actors += [opening.result() for opening in openings if opening.exception() is None]
        for opening in openings:
            opening.result()
        yield [Node(actor.address, actor) for actor in actors]
    finally:
        for actor in actors:
            actor.close()
        with suppress(RayError):
            remove_placement_group(group)


def put(address: str, value: Any) -> Any:
    """A reference to the value in the cluster's object store."""
    connect(address)
    return ray.put(value)


@dataclass
class _Slot:
    """One actor. `call`: what it does now, None for nothing. `unit`: that it maps. `since`: monotonic seconds."""

    actor: Any
    call: Any
    since: float
    unit: Unit | None = None
    mapped: int = 0
    answered: bool = False


@dataclass(frozen=True)
class RayExecutor:
    """`address`: "ray://HOST:PORT" of a Ray client server, "auto" for the cluster that this machine is a node of, or
    "HOST:PORT" of its head. `workers`: actors at most; 0: as many as the cluster has room for."""

    address: str
    workers: int = 0

    def run(self, spec: JobSpec, units: Sequence[Unit], *, opened: ShardJob | None = None) -> Iterator[UnitDone]:
        """As `LocalExecutor.run`; `opened` has no use here. Raises BadInputError, before any unit is mapped, where a
        node has another version, does not see the storage or cannot import the job; BackendError for a cluster that
        cannot be reached, that has no room for one worker, or a unit that `TRIES` workers were lost over."""
        if not units:
            return
        connect(self.address)
        with probe_file(Path(units[0].result).parent) as probe:
            driver = _Driver(spec, probe, self.workers, deque(units), {unit.number for unit in units})
            with closing(driver):
                yield from driver.run(self.address)


def connect(address: str) -> None:
    """Join the cluster, once a process. Raises BackendError where it cannot be reached."""
    if ray.is_initialized():
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        if port.isdecimal():  # Ray itself would try for a minute
            socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
        ray.init(address, namespace="assay", log_to_driver=False, logging_level=logging.ERROR)
        # Ray prints the death of a node on standard output, where a command's result goes; no setting says otherwise.
        vars(ray._private.worker)["_worker_logs_enabled"] = False
    except (RayError, ConnectionError, OSError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BackendError(f"the Ray cluster at {address} cannot be reached: {reason}") from error


@dataclass
class _Driver:
    """One pass over units. `waiting`: those that nobody has; `unmapped`: numbers of those without a result."""

    spec: JobSpec
    probe: Path
    workers: int
    waiting: deque[Unit]
    unmapped: set[int]
    tries: Counter[int] = field(default_factory=Counter)
    slots: list[_Slot] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def run(self, address: str) -> Iterator[UnitDone]:
        hired = answered = time.monotonic()
        self._hire()
        while self.unmapped:
            now = time.monotonic()
            if now - hired > HIRE_EVERY_S:
                hired = now
                self._hire()
            for slot in self._overdue(now):
                log.warning("a worker has not answered for %.0f s: its work goes to another", now - slot.since)
                self._lose(slot)
            answered = now if any(slot.answered for slot in self.slots) else answered
            if now - answered > HELLO_S:
                raise BackendError(f"no worker could be had of the Ray cluster at {address} for {HELLO_S:.0f} s")
            for slot in [slot for slot in self.slots if slot.call is None and self.waiting]:
                self._assign(slot)
            busy = self._busy()
            if not busy:
                time.sleep(_LOOK_S)
                continue
            ready, _ = ray.wait([slot.call for slot in busy], timeout=_LOOK_S)
            for slot in [slot for slot in busy if slot.call in ready]:
                done = self._take(slot)
                if done is not None:
                    yield done

    def _overdue(self, now: float) -> list[_Slot]:
        """Those that have not answered in time; an answer that waits for a slow reader of results is in time."""
        late = [slot for slot in self._busy() if now - slot.since > self._deadline(slot)]
        answers = ray.wait([slot.call for slot in late], num_returns=len(late), timeout=0)[0] if late else []
        return [slot for slot in late if slot.call not in answers]

    def _busy(self) -> list[_Slot]:
        return [slot for slot in self.slots if slot.call is not None]

    def close(self) -> None:
        for slot in self.slots:
            _dismiss(slot.actor)

    def _take(self, slot: _Slot) -> UnitDone | None:
        """What a slot answered, and its next call; None for all but a unit's first result."""
        try:
            answer = ray.get(slot.call, timeout=LEAST_DEADLINE_S)
        except (RayActorError, GetTimeoutError):
            self._lose(slot)
            return None
        except RayTaskError as error:
            raise _cause(error) from error
        if isinstance(answer, Mapping):
            problem = unlike(answer, self.probe)
            if problem and not self.seconds:
                raise BadInputError(problem)
            if problem:
                log.warning("%s; it is not used", problem)
                self._lose(slot)
            else:
                slot.call, slot.since, slot.answered = slot.actor.build.remote(self.spec), time.monotonic(), True
            return None
        self._assign(slot)
        if not isinstance(answer, UnitDone):
            return None
        slot.mapped += 1
        self.seconds.append(answer.seconds)
        if answer.unit.number not in self.unmapped:  # another worker had it, too, and was first
            return None
        self.unmapped.discard(answer.unit.number)
        return answer

    def _assign(self, slot: _Slot) -> None:
        while self.waiting and self.waiting[0].number not in self.unmapped:
            self.waiting.popleft()
        if not self.waiting:  # it is kept for the units of workers that do not answer
            slot.unit = slot.call = None
            return
        slot.unit = self.waiting.popleft()
        self.tries[slot.unit.number] += 1
        slot.call, slot.since = slot.actor.map.remote(self.spec, slot.unit), time.monotonic()

    def _deadline(self, slot: _Slot) -> float:
        if slot.unit is None:
            return HELLO_S
        if not self.seconds:
            return FIRST_CALL_S
        usual = max(LEAST_DEADLINE_S, MEDIANS * statistics.median(self.seconds[-200:]))
        first = max(HELLO_S, MEDIANS * max(self.seconds[: len(self.slots)]))
        doubled: float = 2.0 ** (self.tries[slot.unit.number] - 1)  # the unit itself may be slower than the others
        return doubled * (usual if slot.mapped else first)

    def _lose(self, slot: _Slot) -> None:
        """Raises BackendError for a unit that `TRIES` workers were lost over."""
        self.slots.remove(slot)
        _dismiss(slot.actor)
        if slot.unit is not None and slot.unit.number in self.unmapped:
            if self.tries[slot.unit.number] >= TRIES:
                raise BackendError(f"{slot.unit.shard}: {TRIES} workers were lost over it")
            self.waiting.appendleft(slot.unit)

    def _hire(self) -> None:
        """Actors for the room that the nodes have which are alive now."""
        with suppress(RayError):
            cpus, gpus, room = self.spec.cpus, self.spec.gpus, 0
            resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in resources):
                gpus = 0
            for node in resources:
                by_cpu = int(node.get("CPU", 0) // cpus)
                room += min(by_cpu, int(node.get("GPU", 0) // gpus)) if gpus else by_cpu
            remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_restarts=0, max_task_retries=0)(_Worker)
            for _ in range(min(len(self.unmapped), room, self.workers or room) - len(self.slots)):
                actor = remote.remote()
                self.slots.append(_Slot(actor, actor.hello.remote(str(self.probe)), time.monotonic()))


def _dismiss(actor: Any) -> None:
    with suppress(RayError, RuntimeError, ValueError):  # its node is gone
        ray.kill(actor, no_restart=True)


def _cause(error: RayTaskError) -> AssayError:
    cause = error.cause if isinstance(error.cause, AssayError) else None
    raised = error.cause or error
    return cause or BackendError((str(raised).strip().splitlines() or [type(raised).__name__])[-1])


def unlike(worker: Mapping[str, Any], probe: Path) -> str | None:
    """What makes this node's results other than ours, or not arrive; None for nothing."""
    node = f"the node {worker['node']}"
    if worker["auth"] != "token":
        return f"{node} was started without RAY_AUTH_MODE=token: a cluster without a token runs anybody's code"
    for what, ours in (("assay", __version__), ("ray", ray.__version__), ("python", platform.python_version())):
        theirs = worker[what]
        if (theirs, ours) != (ours, theirs) and (what != "python" or theirs.split(".")[:2] != ours.split(".")[:2]):
            return f"{node} has {what.capitalize()} {theirs}, this machine {ours}"
    if worker["sees"] != probe.name:
        return f"{node} does not see {probe.parent}: the workspace must be in storage that all nodes share"
    return None
