"""The DuckDB instance that a unit of work attaches its file to, kept for the next unit.

Covers: lending an instance in memory with a unit's settings, attaching and detaching the one file, which instances are
not kept, which paths DuckDB cannot open. Leaves out: waiting for the file and what a unit promises
(`assay.store.database`).

A new instance takes 12 ms of CPU time, most of which fills its catalogue of functions; attaching a file takes 2 ms. An
idle instance has no file, so that other processes open it as if this one were not there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import BadInputError

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

CATALOG = "store"  #: the attached file's name in SQL; tables are named without it
#: Of CPU time: a block that takes more may have used much memory (hundreds of MB after a second's writing). Not of wall
#: clock: waiting for another process, or for a busy machine, uses none.
LONG_S = 0.5
#: At most one, whatever the files: it waits with worker threads. Taken and put back by single operations, so that no
#: lock can be held when the process forks.
IDLE: list[duckdb.DuckDBPyConnection] = []


@contextmanager
def lent_instance(*, memory_limit: str, threads: int | None, spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """An instance with these settings, for a block that attaches one file and closes its connections to it.

    Detached and kept after a block that ended well. Closed after one that did not, because DuckDB refuses all work of
    an instance after some failures; after a long one, because an instance gives memory back only when it ends; and
    where something was spilled, because it empties its spill folder then, which must not be while another process
    holds the file and spills there.
    """
    instance = _idle_or_new()
    keep = False
    try:
        # Of the instance, not of a connection: each block sets them, for the last one may have changed them.
        instance.execute(
            f"""SET GLOBAL memory_limit = {_quoted(memory_limit)};
                SET GLOBAL temp_directory = {_quoted(spill)};
                SET GLOBAL preserve_insertion_order = false;
                SET GLOBAL TimeZone = 'UTC';
                {"RESET GLOBAL threads" if threads is None else f"SET GLOBAL threads = {threads}"}"""
        )
        began = time.process_time()
        yield instance
        short = time.process_time() - began < LONG_S
        keep = short and not spill.exists() and not IDLE and detached(instance)
    finally:
        if keep:
            IDLE.append(instance)
        else:
            instance.close()


def require_duckdb_path(path: Path) -> None:
    """Raises BadInputError for a path with a question mark. DuckDB takes what follows one for a request's parameters
    and looks for the file's log beside what is before it, also behind a symbolic link."""
    if "?" in str(path):
        raise BadInputError(
            "the store cannot be in a folder with ? in its path: rename it or choose another", file=path
        )


def _idle_or_new() -> duckdb.DuckDBPyConnection:
    import duckdb

    try:
        return IDLE.pop()
    except IndexError:
        return duckdb.connect(config={"autoinstall_known_extensions": "false"})


def attach(instance: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Open the file, which is made if there is none. Raises DuckDB's IOException where another process holds it."""
    # TYPE: nothing is guessed from the file's name or content.
    instance.execute(f"ATTACH {_quoted(path)} AS {CATALOG} (TYPE duckdb)")


def connected(instance: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """A connection to the attached file; temporary tables, views and settings of its own end with it."""
    connection = instance.cursor()
    connection.execute(f"USE {CATALOG}")
    return connection


def detached(instance: duckdb.DuckDBPyConnection) -> bool:
    """Whether the file is closed. It is not where DuckDB cannot move its log into it, on a full disk for one: nothing
    is lost, the next to open it reads the log."""
    import duckdb

    try:
        instance.execute(f"DETACH {CATALOG}")
    except duckdb.Error as error:
        log.debug("not detached: %s", error)
        return False
    return True


def _quoted(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def close_idle() -> None:
    """Let go of the instance that waits for a unit; the next one has a new one."""
    while IDLE:
        IDLE.pop().close()


# A child has none of the worker threads: it would wait for them for ever when its copy ends.
os.register_at_fork(before=close_idle)
