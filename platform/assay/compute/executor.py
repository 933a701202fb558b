"""Where a job's shards are mapped: `local`, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Annotated, Protocol

import typer

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


class Executor(Protocol):
    def run(self, spec: JobSpec, units: Sequence[Unit], *, opened: ShardJob | None = None) -> Iterator[UnitDone]:
        """Map the units; results come in the order in which they are done."""


def open_executor(on: str = LOCAL) -> Executor:
    """The executor of an `--on`. Raises BadInputError for another word, a tokenless cluster, or without Ray."""
    kind, _, address = on.partition(":")
    if kind == LOCAL and (not address or address.isdecimal()):
        return LocalExecutor(int(address or 0))
    if kind != "ray":
        raise BadInputError(f"{on!r} is no place to work: local, local:N, ray://HOST:PORT, ray:HOST:PORT or ray")
    if os.environ.get("RAY_AUTH_MODE") != "token":
        raise BadInputError(
            "a Ray cluster without a token runs anybody's code: start its nodes with RAY_AUTH_MODE=token, and set that "
            "and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH here"
        )
    try:
        from assay.compute.ray_cluster import RayExecutor
    except ImportError as error:
        raise BadInputError("a Ray cluster needs the extra `ray`: pip install 'assay[ray]'") from error
    return RayExecutor(on if address.startswith("//") else address or "auto")
