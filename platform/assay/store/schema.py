"""The schema of a store: numbered SQL migrations, and how far the file and its redo log have come.

Covers: which migrations are shipped and applied, applying the missing ones, the position in the redo log that the file
holds. Leaves out: opening the file (`assay.store.database`), what the log holds (`assay.store.redo_log`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from assay.errors import BadInputError
from assay.store.redo_log import LogPosition

if TYPE_CHECKING:
    import duckdb

_MIGRATION = re.compile(r"^(\d{4})_\w+\.sql$")
#: Tables about the file itself, which the log has in its own form.
OWN_TABLES = ("schema_migrations", "log_position")
_OWN = """
    CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ);
    CREATE TABLE IF NOT EXISTS log_position (number BIGINT, file VARCHAR, "offset" BIGINT, migrations VARCHAR)"""
_APPLIED = "SELECT version FROM schema_migrations"
#: A statement of its own: every unit asks, and planning both in one takes twice the time.
_POSITION = 'SELECT number, file, "offset", migrations FROM log_position'


@dataclass(frozen=True)
class StoreState:
    """`applied`: migrations that the file has. `logged`: those of them that its log knows. `position`: up to where the
    file has what is in the log; None for a file that has no log yet."""

    applied: frozenset[int]
    logged: frozenset[int]
    position: LogPosition | None


def state_of(connection: "duckdb.DuckDBPyConnection") -> StoreState:
    """Makes the two tables of the schema itself where they are missing."""
    import duckdb

    try:
        versions = connection.execute(_APPLIED).fetchall()
        positions = connection.execute(_POSITION).fetchall()
    except duckdb.CatalogException:
        connection.execute(_OWN)
        return state_of(connection)
    ((number, file, offset, logged),) = positions or [(None, None, None, None)]
    return StoreState(
        frozenset(version for (version,) in versions),
        frozenset(int(version) for version in (logged or "").split(",") if version),
        None if number is None else LogPosition(number, file, offset),
    )


def set_position(connection: "duckdb.DuckDBPyConnection", position: LogPosition, logged: frozenset[int]) -> None:
    """In the caller's transaction: the file has all of the log up to there."""
    values = [position.number, position.file, position.offset, ",".join(map(str, sorted(logged)))]
    statement = 'UPDATE log_position SET number = ?, file = ?, "offset" = ?, migrations = ?'
    if connection.execute(statement, values).fetchall() != [(1,)]:
        connection.execute("INSERT INTO log_position VALUES (?, ?, ?, ?)", values).fetchall()


def migrate(connection: "duckdb.DuckDBPyConnection", only: frozenset[int] | None = None) -> list[int]:
    """Apply the migrations the file does not have yet, in order, each in a transaction. Returns their numbers.

    `only`: those of them to apply; default all. Raises BadInputError for a file that a newer Assay wrote.
    """
    shipped, applied = migrations(), state_of(connection).applied
    require_known(applied)
    missing = sorted((shipped.keys() if only is None else only & shipped.keys()) - applied)
    for version in missing:
        connection.execute("BEGIN")
        try:
            connection.execute(shipped[version])
            connection.execute("INSERT INTO schema_migrations VALUES (?, now())", [version])
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
    return missing


def require_known(versions: frozenset[int]) -> None:
    """Raises BadInputError for migrations that only a newer Assay has."""
    shipped = migrations()
    if newer := versions - shipped.keys():
        raise BadInputError(
            f"the store has schema version {max(newer)}, this Assay knows {max(shipped)}: upgrade Assay"
        )


@cache
def migrations() -> Mapping[int, str]:
    """Number -> SQL text of every shipped migration; read once, for every unit asks. Raises BadInputError where two
    have one number: one of them would never be applied."""
    folder = resources.files("assay.store") / "migrations"
    texts: dict[int, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if match := _MIGRATION.match(entry.name):
            if int(match[1]) in texts:
                raise BadInputError(f"two migrations of the store have the number {match[1]}", file=entry.name)
            texts[int(match[1])] = entry.read_text(encoding="utf-8")
    return texts
