"""Where a job's shards are mapped: `local`, or a Ray cluster."""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from assay.compute.actors import Actor, LocalActor, Node
from assay.compute.job import JobSpec, ShardJob, Unit, UnitDone
from assay.compute.local import LocalExecutor
from assay.errors import BadInputError

LOCAL = "local"
OnOption = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="WHERE",
        help="local, local:N for N processes, or a Ray cluster: ray://HOST:PORT (client server), ray:HOST:PORT (head), "
        "ray (the one this machine is in).",
    ),
]


def check_place(on: str, field: str, *, processes: bool = True) -> None:
    """Raises BadInputError where `on` is no place to work; `field`: the option or setting to blame. `processes`:
    whether local:N is one."""
    if re.fullmatch(r"local(:\d*)?|ray(:.*)?", on) is None or (on.startswith(f"{LOCAL}:") and not processes):
        places = f"local, {'local:N, ' if processes else ''}ray://HOST:PORT, ray:HOST:PORT or ray"
        raise BadInputError(f"{on!r} is no place to work: {places}", field=field)


class Executor(Protocol):
    def run(self, spec: JobSpec, units: Sequence[Unit], *, opened: ShardJob | None = None) -> Iterator[UnitDone]:
        """Map the units; results come in the order in which they are done."""


def open_executor(on: str = LOCAL) -> Executor:
    """The executor of an `--on`. Raises BadInputError for another word, a tokenless cluster, or without Ray."""
    kind, _, number = on.partition(":")
    if kind == LOCAL and (not number or number.isdecimal()):
        return LocalExecutor(int(number or 0))
    address = ray_address(on)
    from assay.compute.ray_cluster import RayExecutor

    return RayExecutor(address)


def open_actor(on: str, target: str, arguments: Mapping[str, Any], *, folder: Path, gpus: float = 0) -> Actor:
    """An actor of `target` ("package.module:Class", built with `arguments` at its first call), on this machine or in
    a Ray cluster. `folder`: that its node has to see. `gpus`: of a cluster's node.

    Raises what `ray_address` and Ray's actor raise.
    """
    if on == LOCAL:
        return LocalActor(target, arguments)
    address = ray_address(on)
    from assay.compute.ray_cluster import RayActor

    return RayActor(address, target, arguments, folder=folder, gpus=gpus)


@contextmanager
def open_nodes(on: str, count: int, target: str, *, folder: Path, cpus: int, gpu: bool) -> Iterator[Sequence[Node]]:
    """An actor of `target` on each of `count` nodes of a Ray cluster, or one on this machine. `cpus`: that each takes
    of its node, and where `gpu`, as many GPUs if the nodes have them.

    Raises what `ray_address` and Ray's actor raise, and BackendError where the cluster has not so many nodes.
    """
    if on.partition(":")[0] == LOCAL:
        with closing(LocalActor(target, {})) as actor:
            yield [Node("127.0.0.1", actor)]
        return
    address = ray_address(on)
    from assay.compute.ray_cluster import ray_nodes

    with ray_nodes(address, count, target, folder=folder, cpus=cpus, gpu=gpu) as nodes:
        yield nodes


def put_object(on: str, value: Any) -> Any:
    """A reference by which every actor of the Ray cluster `on` gets the value; it goes when its references have."""
    address = ray_address(on)
    from assay.compute.ray_cluster import put

    return put(address, value)


def ray_address(on: str) -> str:
    """What Ray calls the cluster of an `--on`. Raises BadInputError for another word, for a tokenless cluster, or
    without Ray."""
    check_place(on, "--on")
    if on.startswith(LOCAL):
        raise BadInputError(f"{on!r} is no Ray cluster: ray://HOST:PORT, ray:HOST:PORT or ray", field="--on")
    if os.environ.get("RAY_AUTH_MODE") != "token":
        raise BadInputError(
            "a Ray cluster without a token runs anybody's code: start its nodes with RAY_AUTH_MODE=token, and set that "
            "and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH here"
        )
    if importlib.util.find_spec("ray") is None:
        raise BadInputError("a Ray cluster needs the extra `ray`: pip install 'assay[ray]'")
    address = on.partition(":")[2]
    return on if address.startswith("//") else address or "auto"
