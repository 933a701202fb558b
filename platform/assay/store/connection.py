"""The type of a unit of work's connection, for annotations: DuckDB itself is imported when a file is opened."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import duckdb

    Connection: TypeAlias = duckdb.DuckDBPyConnection
else:
    Connection = Any
