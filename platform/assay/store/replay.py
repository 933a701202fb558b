"""Applying the units of the redo log to a store that does not have them yet.

Covers: one unit after another in bounded transactions, migrations where the log has them, sequences, the position that
the file holds; damage is reported and passed over. Leaves out: where the store comes from (`assay.store.database`,
`assay.store.rebuilding`).
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.store.keys import UPDATE_KEYS
from assay.store.redo_log import LoggedUnit, LogPosition, RedoLog, checksum
from assay.store.schema import migrate, migrations, require_known, set_position, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb
    import pyarrow as pa

_UNITS = 1_000  #: of one transaction
_BYTES = 500_000_000  #: of segments of one transaction
_BATCH_ROWS = 20_000


@dataclass
class ReplayReport:
    """`rows`: written, by table. `problems`: what of the log could not be read; everything else was applied."""

    units: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    last: LogPosition | None = None


class LogReplay:
    """One pass over a log. Small inserts of neighbouring units are written together."""

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        log: RedoLog,
        *,
        advance: "Callable[[int], object]" = lambda n: None,
    ) -> None:
        """`connection`: to the store, without an open transaction. `advance`: called with units applied."""
        self._db = connection
        self._log = log
        self._advance = advance
        self._pending: dict[str, _Rows] = {}
        self._report = ReplayReport()

    def run(self, after: LogPosition | None) -> ReplayReport:
        """Apply everything after a position. Raises BackendError where the log does not reach it, BadInputError for the
        log of a newer Assay."""
        report = self._report
        self._logged = state_of(self._db).logged
        self._tables = self._table_names()
        self._db.execute("BEGIN")
        units = size = 0
        for unit in self._log.units(after):
            report.last = unit.end
            if unit.content is None:
                report.problems.append(unit.damage)
                if after is None and not report.units:  # the line that says which migrations there are
                    self._migrate(frozenset(migrations()))
                continue
            if unit.void:
                continue
            size += self._apply(unit)
            report.units += 1
            units += 1
            if units >= _UNITS or size >= _BYTES:
                self._commit(unit.end)
                self._db.execute("BEGIN")
                self._advance(units)
                units = size = 0
        self._commit(report.last)
        self._advance(units)
        return report

    def _apply(self, unit: LoggedUnit) -> int:
        """Returns bytes of segments."""
        assert unit.content is not None
        if versions := frozenset(unit.content.get("migrations", ())):
            require_known(versions)
            self._migrate(versions)
        size = 0
        for entry in unit.content.get("tables", ()):
            table = entry["table"]
            if table not in self._tables:
                self._report.problems.append(f"unit {unit.end.number}: the store has no table {table}")
            elif "segment" in entry:
                self._flush(table)
                size += self._insert_segment(unit.end.number, entry)
            else:
                if entry["operation"] == "replace":
                    self._pending.pop(table, None)
                    self._db.execute(f"DELETE FROM {table}")
                self._pending.setdefault(table, _Rows()).add(table, entry)
        return size

    def _migrate(self, versions: frozenset[int]) -> None:
        self._flush()
        self._db.execute("COMMIT")
        migrate(self._db, versions)
        self._logged |= versions
        self._tables = self._table_names()
        self._db.execute("BEGIN")

    def _insert_segment(self, number: int, entry: dict[str, Any]) -> int:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self._log.segments / entry["segment"]
        try:
            actual = checksum(path)
        except OSError as error:
            self._report.problems.append(f"unit {number}: {path} cannot be read: {error.strerror or error}")
            return 0
        if actual != (entry["bytes"], entry["crc32"]):
            self._report.problems.append(
                f"unit {number}: {path} is damaged, {entry['count']} rows of {entry['table']} with it"
            )
            return 0
        # Not DuckDB's own reader: it takes [ and * in the path for a pattern.
        with pq.ParquetFile(path) as file:
            batches = file.iter_batches(_BATCH_ROWS)
            reader = pa.RecordBatchReader.from_batches(file.schema_arrow, batches)
            self._insert(entry["table"], entry["operation"], reader, file.schema_arrow.names)
        self._report.rows[entry["table"]] += entry["count"]
        return int(entry["bytes"])

    def _insert(self, table: str, operation: str, rows: Any, columns: list[str]) -> None:
        import pyarrow as pa

        names = ", ".join(f'"{column}"' for column in columns)
        if operation == "replace":
            self._db.execute(f"DELETE FROM {table}")
        elif operation == "upsert":
            rows = rows if isinstance(rows, pa.Table) else rows.read_all()
            self._db.register("incoming", rows)
            same = " AND ".join(f"{table}.{key} = incoming.{key}" for key in UPDATE_KEYS[table])
            self._db.execute(f"DELETE FROM {table} USING incoming WHERE {same}").fetchall()
            self._db.unregister("incoming")
        self._db.register("incoming", rows)
        self._db.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming").fetchall()
        self._db.unregister("incoming")

    def _flush(self, *only: str) -> None:
        for table in only or tuple(self._pending):
            if (rows := self._pending.pop(table, None)) is not None:
                for columns, values in rows.parts:
                    operation = "upsert" if table in UPDATE_KEYS else "insert"
                    self._insert(table, operation, self._typed(table, columns, values), list(columns))
                    self._report.rows[table] += len(values)

    def _typed(self, table: str, columns: tuple[str, ...], rows: list[list[Any]]) -> "pa.Table":
        """The rows in the types of the store's columns."""
        import pyarrow as pa

        names = ", ".join(f'"{column}"' for column in columns)
        schema = self._db.sql(f"SELECT {names} FROM {table} LIMIT 0").to_arrow_table().schema
        arrays = []
        for values, kind in zip(zip(*rows, strict=True), schema.types, strict=True):
            if pa.types.is_timestamp(kind):
                arrays.append(pa.array(values, pa.int64()).view(pa.timestamp("us", tz=kind.tz)))
            else:
                arrays.append(pa.array(values, kind))
        return pa.table(arrays, names=list(columns))

    def _table_names(self) -> set[str]:
        rows = self._db.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()")
        return {name for (name,) in rows.fetchall()}

    def _commit(self, end: LogPosition | None) -> None:
        self._flush()
        self._advance_sequences()
        if end is not None:
            set_position(self._db, end, self._logged)
        self._db.execute("COMMIT")

    def _advance_sequences(self) -> None:
        """A sequence gives no number that a row has: it is drawn from until it is past them."""
        defaults = self._db.execute(
            """SELECT table_name, column_name, regexp_extract(column_default, 'nextval\\(''([^'']+)''', 1)
               FROM duckdb_columns() WHERE database_name = current_database() AND column_default LIKE '%nextval(%'"""
        ).fetchall()
        for table, column, sequence in defaults:
            ((highest,),) = self._db.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchall()
            ((last,),) = self._db.execute(
                """SELECT coalesce(last_value, 0) FROM duckdb_sequences()
                   WHERE database_name = current_database() AND sequence_name = ?""",
                [sequence],
            ).fetchall()
            if highest > last:
                self._db.execute(f"SELECT max(nextval('{sequence}')) FROM range({highest - last})").fetchall()


class _Rows:
    """Rows of one table that wait to be written, in order; of rows with a key the last counts."""

    def __init__(self) -> None:
        self._parts: dict[tuple[str, ...], list[list[Any]]] = {}
        self._keyed: dict[tuple[str, ...], dict[tuple[Any, ...], list[Any]]] = {}

    def add(self, table: str, entry: dict[str, Any]) -> None:
        columns = tuple(entry["columns"])
        if table not in UPDATE_KEYS:
            self._parts.setdefault(columns, []).extend(entry["rows"])
            return
        places = [columns.index(key) for key in UPDATE_KEYS[table]]
        rows = self._keyed.setdefault(columns, {})
        for row in entry["rows"]:
            rows[tuple(row[place] for place in places)] = row

    @property
    def parts(self) -> list[tuple[tuple[str, ...], list[list[Any]]]]:
        keyed = [(columns, list(rows.values())) for columns, rows in self._keyed.items()]
        return [part for part in [*self._parts.items(), *keyed] if part[1]]
