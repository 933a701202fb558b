"""A job of bulk work: an importable class that turns one table into another, and how its result is written.

Covers: naming a job so that any process can build it, the hash that a result carries, mapping one shard. Leaves out:
which shards there are (`assay.compute.stage`), where they are mapped (`assay.compute.executor`).
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from assay import __version__
from assay.errors import AssayError, BackendError, BadInputError
from assay.system.atomic_files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

HASH = "xxh3_128"  #: of every hash that is kept here: the same on every machine and in every process
_JOB, _SHARD = b"assay.job", b"assay.shard"


class ShardJob(Protocol):
    """`map` depends on nothing but the table and the job's arguments: another worker gives the same table."""

    def open(self) -> None:
        """Load what every shard needs; called once in each worker."""

    def map(self, shard: pa.Table) -> pa.Table:
        """The result of one shard. An AssayError ends the stage; what concerns one row belongs into that row."""


@dataclass(frozen=True)
class JobSpec:
    """`target`: "package.module:Class", built with `arguments`, which are JSON. `reads`: the version of what it reads
    besides (a model's), so that results of another version are not taken for its own. `cpus`, `gpus`: of one worker in
    a cluster; GPUs only where its nodes have any."""

    target: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reads: str = ""
    cpus: float = 1.0
    gpus: float = 0.0

    @property
    def digest(self) -> str:
        return hash_of(json.dumps([__version__, self.target, self.arguments, self.reads], sort_keys=True).encode())

    def build(self) -> ShardJob:
        """Raises BadInputError where the class cannot be imported or does not take the arguments."""
        job: ShardJob = built(self.target, self.arguments)
        return job


def built(target: str, arguments: Mapping[str, Any]) -> Any:
    """The object of "package.module:Class". Raises BadInputError where it cannot be imported or does not take the
    arguments."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(**arguments)
    except (ImportError, AttributeError, TypeError) as error:
        raise BadInputError(f"the job {target} cannot be made here: {error}") from error


@dataclass(frozen=True)
class Unit:
    """One shard to map. `content_hash`: of the shard's file."""

    number: int
    shard: str
    result: str
    rows: int
    content_hash: str


@dataclass(frozen=True)
class UnitDone:
    """`seconds`: that the worker took; 0 for a result that was there already."""

    unit: Unit
    seconds: float = 0.0
    worker: str = ""


def hash_of(content: bytes) -> str:
    import xxhash

    return xxhash.xxh3_128_hexdigest(content)


def file_hash(path: Path) -> str:
    import xxhash

    state = xxhash.xxh3_128()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            state.update(block)
    return state.hexdigest()


def map_shard(job: ShardJob, digest: str, unit: Unit, worker: str = "") -> UnitDone:
    """Map one shard and write its result, complete or not at all. Raises AssayError, BackendError for a shard that is
    not what the driver wrote."""
    import pyarrow.parquet as pq

    started, shard = time.monotonic(), Path(unit.shard)
    try:
        if file_hash(shard) != unit.content_hash:
            raise BackendError(f"{shard} is not the shard that was written there")
        table = pq.read_table(shard)
    except OSError as error:
        raise BackendError(f"{shard} cannot be read by {worker or 'this process'}: {error}") from error
    try:
        result = job.map(table)
    except AssayError:
        raise
    except Exception as error:
        raise BackendError(f"shard {unit.number}: {type(error).__name__}: {error}") from error
    write_table(result, Path(unit.result), {_JOB: digest.encode(), _SHARD: unit.content_hash.encode()})
    return UnitDone(unit, time.monotonic() - started, worker)


def is_mapped(digest: str, unit: Unit) -> bool:
    """Whether the result is there, of this very job and shard."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with suppress(OSError, pa.ArrowException):
        metadata = pq.read_metadata(unit.result).metadata or {}
        return metadata.get(_JOB) == digest.encode() and metadata.get(_SHARD) == unit.content_hash.encode()
    return False


def write_table(table: pa.Table, path: Path, metadata: Mapping[bytes, bytes]) -> None:
    import pyarrow.parquet as pq

    combined = {**(table.schema.metadata or {}), **metadata}
    with replacing(path) as temporary:
        pq.write_table(table.replace_schema_metadata(combined), temporary, compression="zstd")
