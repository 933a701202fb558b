"""The redo log of an opened store: in step with the file before a unit of work, written at its end.

Covers: units that only the log has, migrations, the base that the log of an older store begins with, appending a unit's
changes and taking them back. Leaves out: the log's files (`assay.store.redo_log`), which rows changed
(`assay.store.change_capture`).
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import BackendError
from assay.store.change_capture import CapturingConnection, drop_segments, write_table
from assay.store.redo_log import LogPosition, RedoLog
from assay.store.replay import LogReplay
from assay.store.schema import OWN_TABLES, migrate, migrations, require_known, set_position, state_of

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogWriter:
    """`number`: of the unit that comes next."""

    log: RedoLog
    number: int
    logged: frozenset[int]

    def append(self, connection: "duckdb.DuckDBPyConnection", capture: CapturingConnection) -> LogPosition | None:
        """Write what the open transaction has changed; None for nothing. Raises BackendError when the disk fails."""
        entries = capture.write_changes(self.log, self.number)
        if not entries:
            return None
        try:
            end = self.log.append({"tables": entries}, self.number)
        except BaseException:
            drop_segments(self.log, entries)
            raise
        set_position(connection, end, self.logged)
        return end

    def take_back(self, end: LogPosition) -> None:
        with suppress(OSError):  # then it is applied with the next unit: it is complete
            self.log.set_void(end, void=True)


def synchronise(connection: "duckdb.DuckDBPyConnection", redo_log: RedoLog) -> LogWriter:
    """Bring file and log to one state, and the file to this Assay's schema.

    Raises BackendError where the log is not this file's, BadInputError for a file that a newer Assay wrote.
    """
    state = state_of(connection)
    require_known(state.applied)
    position, last = state.position, state.position.number if state.position else 0
    if position is None:
        _require_no_history(redo_log)
    elif not redo_log.files() and not redo_log.segments.exists():
        position = None  # the log was removed: it begins again
    else:
        if not redo_log.ends_at(position):
            redo_log.cut_torn()
            last = _catch_up(connection, redo_log, position)
            state = state_of(connection)
        if redo_log.is_void(position):  # its commit failed in the end, and yet the file has it
            redo_log.set_void(position, void=False)
    if migrations().keys() - state.applied:
        migrate(connection)
        state = state_of(connection)
    if position is None:
        end = write_base(connection, redo_log, last_number(redo_log) + 1)
        return LogWriter(redo_log, end.number + 1, state.applied)
    if state.applied != state.logged:
        last += 1
        end = redo_log.append({"migrations": sorted(state.applied - state.logged)}, last)
        connection.execute("BEGIN")
        set_position(connection, end, state.applied)
        connection.execute("COMMIT")
    return LogWriter(redo_log, last + 1, state.applied)


def write_base(connection: "duckdb.DuckDBPyConnection", redo_log: RedoLog, number: int) -> LogPosition:
    """A unit with every row of the store, with which the log begins; what came before it in the log is removed."""
    tables = [
        name
        for (name,) in connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() ORDER BY 1"
        ).fetchall()
        if name not in OWN_TABLES
    ]
    applied = state_of(connection).applied
    entries: list[dict[str, Any]] = []
    connection.execute("BEGIN")
    try:
        for table in tables:
            ((rows,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
            if rows:
                if not entries and rows > 10_000:
                    log.warning("writing the log of a store that has none: all of its rows, once")
                entry = write_table(connection, table, "replace", f"SELECT * FROM {table}", redo_log, number)
                entries += [entry] if entry is not None else []
        content = {"base": True, "migrations": sorted(applied), "tables": entries}
        end = redo_log.append(content, number, new_file=True)
        set_position(connection, end, applied)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(Exception):
            connection.execute("ROLLBACK")
        raise
    redo_log.drop_before(end)
    return end


def _require_no_history(redo_log: RedoLog) -> None:
    """A file without a position may have a log of nothing but a base: its writer was killed before the file had it."""
    units = list(zip(range(2), redo_log.units(), strict=False))
    if len(units) > 1 or any(unit.content is None or not unit.content.get("base") for _, unit in units):
        raise BackendError(
            f"{redo_log.folder} is not the log of this store: `assay rebuild` makes the store anew from the log, "
            "`assay rebuild --log` the log from the store"
        )


def last_number(redo_log: RedoLog) -> int:
    return max((unit.end.number for unit in redo_log.units()), default=0)


def _catch_up(connection: "duckdb.DuckDBPyConnection", redo_log: RedoLog, position: LogPosition) -> int:
    """Apply what only the log has; returns the number of its last unit."""
    last, missing = position.number, 0
    try:
        for unit in redo_log.units(position):
            last, missing = unit.end.number, missing + (not unit.void)
    except BackendError as error:
        raise BackendError(
            f"{error}: `assay rebuild --log` writes the log anew from the store, `assay rebuild` the store from the log"
        ) from error
    if missing:
        log.warning("%d units of work are in the log and not in the store: they are applied now", missing)
        report = LogReplay(connection, redo_log).run(position)
        for problem in report.problems:
            log.warning("%s", problem)
    return last
