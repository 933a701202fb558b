"""Which rows a unit of work inserts and changes, whatever statement does it: change data capture.

Covers: a connection that notes the tables its statements write to, and those rows as the redo log has them: in the line
where they are few, otherwise in Parquet segments that DuckDB writes. Leaves out: the log's files
(`assay.store.redo_log`), applying changes (`assay.store.replay`).

Rows that a transaction inserts have row ids of their own range until it commits: they are read from there. An UPDATE
answers with the keys of its rows. After anything else that changes rows (DELETE, an UPDATE of a table that has no key
here), the log gets the table as it is then.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from assay.errors import BackendError
from assay.store.keys import UPDATE_KEYS
from assay.store.redo_log import RedoLog, checksum
from assay.store.schema import OWN_TABLES
from assay.system.atomic_files import sync_folder

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

Operation: TypeAlias = Literal["insert", "upsert", "replace"]

#: DuckDB's MAX_ROW_ID: rows of a transaction have ids from here on until it commits.
FIRST_LOCAL_ROW = 36_028_797_018_960_000
INLINE_ROWS = 200  #: at most, of one table in a log's line
INLINE_BYTES = 500_000
#: Nothing is compressed: that would take a quarter more CPU time of an import.
_SEGMENT_FORMAT = "FORMAT parquet, COMPRESSION uncompressed, DICTIONARY_SIZE_LIMIT 1"
_WRITE = re.compile(
    r"\b(INSERT\s+(?:OR\s+\w+\s+)?INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE(?:\s+TABLE)?|COPY)"
    r'\s+(?:\w+\.)*"?(\w+)',
    re.IGNORECASE,
)
_REPLACING = re.compile(r"\bOR\s+REPLACE\s+INTO\b|\bDO\s+UPDATE\b", re.IGNORECASE)


@lru_cache(maxsize=2048)
def written_tables(statement: str) -> tuple[tuple[str, str], ...]:
    """(verb, table) for everything in a statement that looks like a write, also in its quoted texts. The verb of an
    insert that also changes rows is REPLACE."""
    replacing = _REPLACING.search(statement) is not None
    return tuple(
        ("REPLACE" if replacing and verb[:6].upper() == "INSERT" else verb.split()[0].upper(), table.lower())
        for verb, table in _WRITE.findall(statement)
        if table.upper() != "SET"  # ON CONFLICT DO UPDATE SET
    )


class CapturingConnection:
    """A connection of a unit of work; everything but the statements it notes is the connection's own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._inserted: dict[str, None] = {}
        self._updated: dict[str, set[tuple[Any, ...]]] = {}
        self._replaced: dict[str, None] = {}
        self._answer: list[tuple[int]] | None = None  #: of an UPDATE whose own answer was read here

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: Any, parameters: Any = None, **options: Any) -> CapturingConnection:
        self._answer = None
        for verb, table in written_tables(statement) if isinstance(statement, str) else ():
            if verb == "UPDATE" and table in UPDATE_KEYS and statement.lstrip()[:6].upper() == "UPDATE":
                return self._update(table, statement, parameters)
            self._note(verb, table)
        self._connection.execute(statement, parameters, **options)
        return self

    def executemany(self, statement: Any, parameters: Any = None, **options: Any) -> CapturingConnection:
        self._answer = None
        self._note_all(statement)
        self._connection.executemany(statement, parameters, **options)
        return self

    def sql(self, statement: Any, **options: Any) -> duckdb.DuckDBPyRelation:
        self._note_all(statement)
        return self._connection.sql(statement, **options)

    query = sql

    def fetchone(self) -> Any:
        if self._answer is None:
            return self._connection.fetchone()
        return self._answer.pop() if self._answer else None

    def fetchall(self) -> Any:
        if self._answer is None:
            return self._connection.fetchall()
        rows, self._answer = self._answer, []
        return rows

    def cursor(self) -> duckdb.DuckDBPyConnection:
        raise TypeError("a unit of work has one connection: what another one writes would not be in the log")

    def changes(self) -> list[tuple[str, Operation]]:
        """The tables that may have changed, in the order of their first statement."""
        operations: dict[str, Operation] = dict.fromkeys(self._inserted, "insert")
        operations |= dict.fromkeys(self._updated, "upsert")
        operations |= dict.fromkeys(self._replaced, "replace")
        if not operations:
            return []
        rows = self._connection.execute(
            """SELECT table_name FROM duckdb_tables()
               WHERE database_name = current_database() AND NOT temporary AND list_contains(?, table_name)""",
            [list(operations)],
        ).fetchall()
        present = {name for (name,) in rows} - set(OWN_TABLES)
        return [(table, operation) for table, operation in operations.items() if table in present]

    def write_changes(self, log: RedoLog, number: int) -> list[dict[str, Any]]:
        """All changes of the unit as the log's entries; segments are on the disk. An empty list: nothing has changed.

        Raises BackendError when the disk fails; no segment is left then.
        """
        entries: list[dict[str, Any]] = []
        self._connection.complete()  # the caller may not have fetched its last result
        try:
            for table, operation in self.changes():
                if not _local_rows_have_own_ids():
                    raise BackendError("this version of DuckDB does not tell a transaction's rows from others")
                if (entry := self._entry(table, operation, log, number)) is not None:
                    entries.append(entry)
            if any("segment" in entry for entry in entries):
                sync_folder(log.segments)
        except OSError as error:
            drop_segments(log, entries)
            raise BackendError(
                f"cannot write {log.segments}: {error.strerror or error}; the last step was not stored, run it again"
            ) from error
        except BaseException:
            drop_segments(log, entries)
            raise
        return entries

    def _note(self, verb: str, table: str) -> None:
        (self._inserted if verb in ("INSERT", "COPY") else self._replaced)[table] = None

    def _note_all(self, statement: Any) -> None:
        for verb, table in written_tables(str(statement)):
            self._note(verb, table)

    def _update(self, table: str, statement: str, parameters: Any) -> CapturingConnection:
        keys = self._connection.execute(
            f"{statement.rstrip().rstrip(';')} RETURNING {', '.join(UPDATE_KEYS[table])}", parameters
        ).fetchall()
        self._updated.setdefault(table, set()).update(keys)
        self._answer = [(len(keys),)]
        return self

    def _entry(self, table: str, operation: Operation, log: RedoLog, number: int) -> dict[str, Any] | None:
        local = f"SELECT * FROM {table} WHERE rowid >= {FIRST_LOCAL_ROW}"
        if operation == "replace":
            return write_table(self._connection, table, operation, f"SELECT * FROM {table}", log, number)
        if operation == "insert":
            return write_table(self._connection, table, operation, local, log, number)
        import pyarrow as pa

        columns = UPDATE_KEYS[table]
        types = self._connection.sql(f"SELECT {', '.join(columns)} FROM {table} LIMIT 0").to_arrow_table().schema
        changed = self._updated[table]
        keys = pa.table(
            [pa.array([key[i] for key in changed], type=types.field(i).type) for i in range(len(columns))],
            names=list(columns),
        )
        self._connection.register("updated_keys", keys)
        try:
            query = (
                f"{local} UNION ALL SELECT t.* FROM {table} t SEMI JOIN updated_keys USING ({', '.join(columns)}) "
                f"WHERE t.rowid < {FIRST_LOCAL_ROW}"
            )
            return write_table(self._connection, table, operation, query, log, number)
        finally:
            self._connection.unregister("updated_keys")


def write_table(
    connection: duckdb.DuckDBPyConnection, table: str, operation: Operation, query: str, log: RedoLog, number: int
) -> dict[str, Any] | None:
    """The rows of a query as one entry of the log; None where it has none, unless they replace others."""
    ((count,),) = connection.execute(f"SELECT count(*) FROM ({query})").fetchall()
    if not count and operation != "replace":
        return None
    entry: dict[str, Any] = {"table": table, "operation": operation, "count": count}
    if (inline := _inline(connection, query, count)) is not None:
        return entry | inline
    path = log.segment(number, table)
    try:
        connection.execute(f"COPY ({query}) TO {_quoted(path)} ({_SEGMENT_FORMAT})").fetchall()
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
        size, crc = checksum(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return entry | {"segment": path.name, "bytes": size, "crc32": crc}


@cache
def _local_rows_have_own_ids() -> bool:
    """Whether this DuckDB numbers the rows of a transaction as `FIRST_LOCAL_ROW` says."""
    import duckdb

    with duckdb.connect() as db:
        db.execute("CREATE TABLE probe AS SELECT 1 AS a; BEGIN; INSERT INTO probe VALUES (2)")
        return db.execute(f"SELECT list(a) FROM probe WHERE rowid >= {FIRST_LOCAL_ROW}").fetchall() == [([2],)]


def drop_segments(log: RedoLog, entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        if "segment" in entry:
            with suppress(OSError):
                (log.segments / entry["segment"]).unlink()


def _inline(connection: duckdb.DuckDBPyConnection, query: str, count: int) -> dict[str, Any] | None:
    """Columns and rows of a small change as JSON has them; None where they are too large for a line."""
    if count > INLINE_ROWS:
        return None
    batches: list[pa.RecordBatch] = []
    reader = connection.sql(query).to_arrow_reader(INLINE_ROWS)
    size = 0
    for batch in reader:
        size += batch.nbytes
        if size > INLINE_BYTES:
            reader.close()
            return None
        batches.append(batch)
    names = reader.schema.names
    rows = [list(values) for batch in batches for values in zip(*map(_plain, batch.columns), strict=True)]
    return {"columns": names, "rows": rows}


def _plain(column: pa.Array) -> list[Any]:
    """Values that JSON holds exactly; a time is its microseconds since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
